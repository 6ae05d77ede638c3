"""Replicas of an engine under Ray Serve, with the part of OpenAI's chat API that needs no more than an engine.

    pip install yggc 'ray[serve]'
    YGG_MODEL=model.gguf YGG_PLAN=here.plan serve run ray_serve:app
    curl localhost:8000/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Name five rivers."}], "stream": true}' \\
        -H 'content-type: application/json'

- An engine answers one request at a time, so a replica holds one, and what waits is its queue: Serve adds replicas while more than
  `target_ongoing_requests` wait at each, and removes them when they idle.
- A conversation returns to the replica that answered it last, which still has its keys and values, as long as that replica does not wait on
  others: the conversation is Serve's multiplexed model. Its name is the request's `user`, or made of its first messages.
- If a replica dies, another begins the answer anew, leaves out what the client has already, and the client sees one answer (`one_answer.py` in
  this folder).

Engines of replicas on one machine share its memory bandwidth: with `YGG_THREADS` threads each, give every replica as many processors.
"""

import asyncio
import hashlib
import json
import os
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.exceptions import RayActorError, RayTaskError

import yggc
from one_answer import one_answer

THREADS = int(os.environ.get("YGG_THREADS", "1"))
MODEL = os.environ.get("YGG_MODEL", "")
PLAN = os.environ.get("YGG_PLAN")


class Request(BaseModel):
    """What is read of a request; anything else is refused rather than overlooked."""

    model_config = ConfigDict(extra="forbid")

    messages: list[dict[str, Any]] = Field(min_length=1)
    model: str = ""
    max_tokens: int = Field(256, ge=1)
    temperature: float = Field(0.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    seed: int = Field(0, ge=0)
    stop: str | list[str] = []
    stream: bool = False
    user: str = ""

    def conversation(self) -> str:
        """A name that its further turns have, too."""
        if self.user:
            return self.user
        first = json.dumps(self.messages[:2] if self.messages[0].get("role") == "system" else self.messages[:1], sort_keys=True)
        return hashlib.sha256(first.encode()).hexdigest()


@serve.deployment(
    ray_actor_options={"num_cpus": THREADS},
    max_ongoing_requests=8,
    autoscaling_config={
        "min_replicas": int(os.environ.get("YGG_MIN_REPLICAS", "1")),
        "max_replicas": int(os.environ.get("YGG_MAX_REPLICAS", "2")),
        # Those that wait for the engine and the one that it answers: the queue of `yggc serve` and one.
        "target_ongoing_requests": float(os.environ.get("YGG_TARGET_REQUESTS", "2")),
        "upscale_delay_s": 5,
        # A conversation whose replica goes runs its whole prompt again.
        "downscale_delay_s": 300,
    },
)
class Replica:
    """One engine and the requests that wait for it."""

    def __init__(self, model: str, plan: str | None) -> None:
        self.engine = yggc.Engine(model, plan=plan, threads=THREADS)
        self.turn = asyncio.Lock()

    @serve.multiplexed(max_num_models_per_replica=1)
    async def remembers(self, conversation: str) -> str:
        """Tells Serve which conversation the engine knows: the last."""
        return conversation

    async def pid(self) -> int:
        """The process, for tests that end it."""
        return os.getpid()

    async def answer(self, request: dict[str, Any], skip: int) -> AsyncIterator[dict[str, Any]]:
        """The tokens of an answer after the first `skip`, then its end."""
        async with self.turn:
            await self.remembers(serve.get_multiplexed_model_id())
            messages = request.pop("messages")
            with self.engine.chat(messages, **request) as generation:
                count = 0
                async for token in generation:
                    count += 1
                    if count > skip:
                        yield {"text": token.text}
                answer = await generation.answer_async()
            yield {
                "rest": answer.text, "finish_reason": answer.finish_reason, "prompt_tokens": len(answer.prompt_token_ids),
                "completion_tokens": len(answer.token_ids), "reused_tokens": answer.report.reused_tokens, "pid": os.getpid(),
            }


api = FastAPI()


@serve.deployment(max_ongoing_requests=256)
@serve.ingress(api)
class Chat:
    """Takes requests, gives each to a replica, and passes on what it says."""

    def __init__(self, replica: serve.handle.DeploymentHandle) -> None:
        self.replica = replica.options(stream=True)

    def events(self, request: Request) -> AsyncIterator[dict[str, Any]]:
        """Tokens and the end, from another replica if one dies."""
        asked = request.model_dump(include={"messages", "max_tokens", "temperature", "top_p", "seed", "stop"})
        handle = self.replica.options(multiplexed_model_id=request.conversation())
        return one_answer(lambda skip: handle.answer.remote(asked, skip), RayActorError)

    @api.post("/v1/chat/completions")
    async def complete(self, request: Request) -> Any:
        """One answer, whole or as server-sent events."""
        about = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": request.model or os.path.basename(MODEL)}
        events = self.events(request)
        try:
            # What is wrong with a request is known before its first token.
            first = await anext(events)
        except RayTaskError as error:
            if isinstance(error.cause, yggc.InputError):
                raise HTTPException(400, {"error": {"message": str(error.cause), "type": "invalid_request_error"}}) from None
            raise
        if request.stream:
            return StreamingResponse(self.stream(about, first, events), media_type="text/event-stream")
        text = first["text"]
        last = first
        async for last in events:
            text += last["text"]
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": last["finish_reason"]}
        usage = {key: last[key] for key in ("prompt_tokens", "completion_tokens", "reused_tokens", "pid")}
        return {**about, "object": "chat.completion", "choices": [choice], "usage": usage}

    async def stream(self, about: dict[str, Any], first: dict[str, Any], events: AsyncIterator[dict[str, Any]]) -> AsyncIterator[str]:
        """The events as OpenAI's chunks."""

        def chunk(event: dict[str, Any]) -> str:
            choice = {"index": 0, "delta": {"content": event["text"]}, "finish_reason": event.get("finish_reason")}
            return f"data: {json.dumps({**about, 'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n"

        yield chunk(first)
        async for event in events:
            yield chunk(event)
        yield "data: [DONE]\n\n"


app = Chat.bind(Replica.bind(MODEL, PLAN))
