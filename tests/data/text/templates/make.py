"""Renders conversations.json with every template here as transformers does, into rendered.json (null: it refuses). Needs transformers."""
import datetime
import json
import pathlib

import jinja2
from transformers.utils import chat_template_utils


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 5, 7, 8, 9)


chat_template_utils.datetime = Clock
here = pathlib.Path(__file__).parent
weather = {"type": "function", "function": {"name": "get_weather", "description": "Gets the weather of a city, \"now\" <or> later.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Name of the city"},
    "days": {"type": "integer", "default": 1}, "scale": {"type": "number", "default": 1.0}}, "required": ["city"]}}}
call = {"id": "call12345", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}}}
text_call = {**call, "function": {"name": "get_weather", "arguments": "{\"city\": \"Zürich\"}"}}


def user(text):
    return {"role": "user", "content": text}


def said(text, **fields):
    return {"role": "assistant", "content": text, **fields}


def system(text, role="system"):
    return {"role": role, "content": text}


def case(messages, tools=(), prompt=True, **variables):
    return {"messages": messages, "tools": list(tools), "variables": list(variables.items()), "add_generation_prompt": prompt}


answer = {"role": "tool", "name": "get_weather", "tool_call_id": "call12345", "content": "{\"temperature\": 21.5}"}
cases = [
    case([user("Hello, who are you?")]),
    case([system("You are terse."), user("Name a river.")]),
    case([system("Be kind.\n"), user(" Hi "), said(" Hello! "), user("Wie geht's? 🙂"), said("Gut."), user("Bye")]),
    case([system("Follow the application.", "developer"), user("Hi")]),
    case([user("Weather in Zürich?")], [weather]),
    case([system("Use tools."), user("Weather?"), said("", tool_calls=[call]), answer, said("21.5 degrees."), user("Thanks")], [weather]),
    case([user("2+2?"), said("<think>\nEasy.\n</think>\n\n4"), user("3+3?")], enable_thinking=False),
    case([user("2+2?"), said("4", reasoning_content="Two and two."), user("And 3+3?")], enable_thinking=True),
    case([user("Hi"), said("Hello.")], prompt=False),
    case([user("Weather?"), {"role": "assistant", "content": None, "tool_calls": [text_call]}, answer], [weather]),
]
rendered = {}
for path in sorted(here.glob("*.jinja")):
    texts = []
    for c in cases:
        try:
            text, _ = chat_template_utils.render_jinja_template(
                [c["messages"]], tools=c["tools"] or None, chat_template=path.read_text(), bos_token="<BOS>", eos_token="<EOS>",
                add_generation_prompt=c["add_generation_prompt"], **dict(c["variables"]))
            texts.append(text[0])
        except (jinja2.TemplateError, TypeError) as error:
            print(path.name, len(texts), repr(error)[:100])
            texts.append(None)
    rendered[path.stem] = texts
(here / "conversations.json").write_text(json.dumps(cases, ensure_ascii=False, indent=1) + "\n")
(here / "rendered.json").write_text(json.dumps(rendered, ensure_ascii=False, indent=1) + "\n")
