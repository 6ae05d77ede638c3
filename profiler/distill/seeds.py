"""What the verifier is asked: prompts of many kinds, given, made by template, written by the verifier itself, and made from its answers.

Every batch is a function of the seed, its number and the corpus before it, so that a run that was ended goes on as if it had not been.
"""

import random
from dataclasses import dataclass

from . import seed_words as words

SECOND_TURN_SHARE = 0.15
"""Share of the prompts made from answers that go on with the conversation instead of starting one about the answer."""

LONG_SHARE, LONG_ANSWERS = 0.3, range(3, 8)
"""Share of the texts to work on that are several answers, one after the other, and how many. Behind texts longer than any that it
learned from, a drafter guesses badly: it has seen neither the positions nor what a summary takes from far back."""


@dataclass(frozen=True)
class Prompt:
    """The user's turns, with the model's between them."""

    kind: str
    turns: tuple[str, ...]


def _choices(text: str) -> list[str]:
    return [part for line in text.splitlines() for part in line.split("|") if part.strip()]


_TOPICS, _THINGS, _PLACES, _ROLES = map(_choices, (words.TOPICS, words.THINGS, words.PLACES, words.ROLES))
_FUNCTIONS, _LANGUAGES, _SENTENCES, _GERMAN = map(_choices, (words.FUNCTIONS, words.LANGUAGES, words.SENTENCES, words.GERMAN))
_NAMES = words.NAMES.split()
_TASKS = {kind: _choices(text) for kind, text in words.TASKS.items()}
_PASSAGE_TASKS = {kind: _choices(text) for kind, text in words.PASSAGE_TASKS.items()}


def _fill(pattern: str, draw: random.Random, passages: list[str]) -> str:
    name, name2, name3 = draw.sample(_NAMES, 3)
    topic, topic2 = draw.sample(_TOPICS, 2)
    thing, thing2 = draw.sample(_THINGS, 2)
    place, place2 = draw.sample(_PLACES, 2)
    function = draw.choice(_FUNCTIONS)
    slots = {
        "name": name, "name2": name2, "name3": name3, "topic": topic, "topic2": topic2, "thing": thing, "thing2": thing2,
        "place": place, "place2": place2, "role": draw.choice(_ROLES), "function": function,
        "function_name": "_".join(function.split()[:3]).lower(), "language": draw.choice(_LANGUAGES),
        "a": draw.randint(12, 40), "b": draw.randint(5, 11), "c": draw.randint(2, 9), "d": draw.choice(range(60, 500, 12)),
    }
    slots["sentence"] = draw.choice(_SENTENCES).format(**slots)
    slots["german"] = draw.choice(_GERMAN).format(**slots)
    if passages:
        slots["passage"], slots["passage2"] = _passage(draw, passages), draw.choice(passages)
    return pattern.replace("\\n", "\n").format(**slots)


def _passage(draw: random.Random, passages: list[str]) -> str:
    if draw.random() >= LONG_SHARE:
        return draw.choice(passages)
    return "\n\n".join(draw.sample(passages, min(draw.choice(LONG_ANSWERS), len(passages))))


def by_template(draw: random.Random) -> Prompt:
    """A short prompt of any kind; kinds are as likely as each other, maths twice as likely."""
    kind = draw.choice([*_TASKS, "maths"])
    return Prompt(kind, (_fill(draw.choice(_TASKS[kind]), draw, []),))


def about_answers(draw: random.Random, answers: list[tuple[Prompt, str]]) -> Prompt:
    """A longer prompt that holds what the verifier wrote before: as a text to work on, or as the first answer of a conversation."""
    if draw.random() < SECOND_TURN_SHARE:
        prompt, answer = draw.choice(answers)
        return Prompt("turns", (*prompt.turns, answer, draw.choice(_PASSAGE_TASKS["turns"])))
    kind = draw.choice([kind for kind in _PASSAGE_TASKS if kind != "turns"])
    return Prompt(kind, (_fill(draw.choice(_PASSAGE_TASKS[kind]), draw, [answer for _, answer in answers]),))


@dataclass
class Sources:
    """Where prompts come from. `given` are a file's, `written` the verifier's own, `answers` what it answered so far."""

    seed: int
    given: list[Prompt]
    written: list[Prompt]
    answers: list[tuple[Prompt, str]]

    def batch(self, number: tuple[int, int], count: int) -> list[Prompt]:
        """`count` prompts, the same for the same number and sources. A quarter is made from answers, once there are any."""
        draw = random.Random(f"{self.seed}/{number}")
        prompts = []
        for _ in range(count):
            kind = draw.random()
            if self.answers and kind < 0.25:
                prompts.append(about_answers(draw, self.answers))
            elif self.given and kind < 0.35:
                prompts.append(draw.choice(self.given))
            elif self.written and kind < 0.65:
                prompts.append(draw.choice(self.written))
            else:
                prompts.append(by_template(draw))
        return prompts


def all_templates() -> list[str]:
    """The patterns that prompts are made by and the texts that fill them, for checks of what they contain."""
    tasks = [pattern for patterns in (*_TASKS.values(), *_PASSAGE_TASKS.values()) for pattern in patterns]
    return [*tasks, *_SENTENCES, *_GERMAN, *_FUNCTIONS, *_ROLES]
