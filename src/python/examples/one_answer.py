"""One answer from replicas that may be lost while they give it. `ray_serve.py` has its answers by this; it needs nothing of Ray's.

The same request gives the same tokens on every replica with the same model, class of activations and cache. So if a replica is lost, another begins
the answer anew, what the client has already is left out, and the client sees one answer.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

# How often an answer may lose its replica.
ATTEMPTS = 4

Events = AsyncIterator[dict[str, Any]]


async def one_answer(ask: Callable[[int], Events], lost: type[BaseException]) -> Events:
    """The events of one answer: `text` of each token, then the end, which has the text that is left, `finish_reason` and what else a replica says.

    `ask(skip)` has some replica answer. It gives the tokens after the first `skip`, then an end with the whole text as `rest`, and raises `lost`
    when its replica is lost, as this does when that has happened `ATTEMPTS` times.
    """
    sent, text = 0, ""
    for attempt in range(ATTEMPTS):
        try:
            async for event in ask(sent):
                if "finish_reason" in event:
                    # A stop string that never came may have held back the last of the text.
                    event["text"] = event.pop("rest")[len(text):]
                else:
                    sent, text = sent + 1, text + event["text"]
                yield event
            return
        except lost:
            if attempt + 1 == ATTEMPTS:
                raise
