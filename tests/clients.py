"""Client libraries against `yggc serve`: `python3 tests/clients.py URL`, for a server that runs.

Tries `openai` (chat, responses, streams, tools), `langchain-openai` (structured output, tools, both APIs) and `litellm`, each if it is installed,
and says which is not. Answers are constrained where their content matters, so a weak model does. .ci/clients runs it.
"""

import enum
import importlib.util
import json
import os
import sys

from pydantic import BaseModel, ConfigDict

QUESTION = "What is the weather in Oslo for the next 3 days?"


class City(str, enum.Enum):
    oslo = "Oslo"
    rome = "Rome"


class Weather(BaseModel):
    """Weather of a city."""

    model_config = ConfigDict(extra="forbid")
    city: City
    days: int


def function(name, schema):
    return {"name": name, "description": f"Tells the {name}", "parameters": schema}


SCHEMA = Weather.model_json_schema()
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
FUNCTIONS = [function("weather", SCHEMA), function("now", NOTHING)]


def checked(name, arguments):
    """The arguments of a call fit what its function takes."""
    arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    if name == "weather":
        return Weather.model_validate(arguments)
    assert (name, arguments) == ("now", {}), (name, arguments)


def by_openai(url, model):
    import openai

    client = openai.OpenAI(base_url=url + "/v1", api_key="unused", max_retries=0)
    chat = dict(model=model, messages=[{"role": "user", "content": QUESTION}], max_completion_tokens=48, temperature=0)
    whole = client.chat.completions.create(**chat)
    assert whole.choices[0].message.content and whole.usage.completion_tokens > 0, whole
    stream = client.chat.completions.create(**chat, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == whole.choices[0].message.content

    parsed = client.chat.completions.parse(**chat, response_format=Weather)
    assert isinstance(parsed.choices[0].message.parsed, Weather), parsed

    tools = [{"type": "function", "function": function} for function in FUNCTIONS]
    named = {"type": "function", "function": {"name": "weather"}}
    for choice in ("required", named):
        asked = chat | dict(tools=tools, tool_choice=choice, parallel_tool_calls=False, max_completion_tokens=200)
        answer = client.chat.completions.create(**asked).choices[0]
        assert answer.finish_reason == "tool_calls" and answer.message.content is None, answer
        [call] = answer.message.tool_calls
        checked(call.function.name, call.function.arguments)
        with client.chat.completions.stream(**asked) as events:
            streamed = events.get_final_completion().choices[0].message.tool_calls[0]
        assert (streamed.function.name, streamed.function.arguments) == (call.function.name, call.function.arguments)
    history = chat["messages"] + [answer.message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    said = client.chat.completions.create(**(chat | dict(messages=history, tools=tools, tool_choice="none")))
    assert said.choices[0].message.content, said

    asked = dict(model=model, input=QUESTION, instructions="Be brief.", max_output_tokens=48, temperature=0)
    response = client.responses.create(**asked)
    assert response.output_text and response.usage.output_tokens > 0, response
    with client.responses.stream(**asked) as events:
        pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert len(pieces) > 1 and "".join(pieces) == response.output_text, pieces
    parsed = client.responses.parse(**asked, text_format=Weather)
    assert isinstance(parsed.output_parsed, Weather), parsed
    tools = [{"type": "function", "strict": True, **function} for function in FUNCTIONS]
    asked |= dict(tools=tools, tool_choice={"type": "function", "name": "weather"}, max_output_tokens=200)
    response = client.responses.create(**asked)
    [call] = response.output
    checked(call.name, call.arguments)
    with client.responses.stream(**asked) as events:
        [streamed] = events.get_final_response().output
    assert (streamed.name, streamed.arguments) == (call.name, call.arguments), streamed
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    items = [{"role": "user", "content": QUESTION}, *response.output, result]
    said = client.responses.create(**(asked | dict(input=items, tool_choice="none", max_output_tokens=32)))
    assert said.output_text, said
    try:
        client.responses.create(**(asked | dict(previous_response_id=response.id)))
        raise AssertionError("no response is stored")
    except openai.BadRequestError as refused:
        assert refused.code == "previous_response_not_found", refused


def by_langchain(url, model):
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    def weather(city: City, days: int) -> str:
        """Weather of a city."""
        return f"rain in {city.value} for {days} days"

    @tool
    def now() -> str:
        """The time."""
        return "noon"

    tools = {"weather": weather, "now": now}
    for of_responses in (False, True):
        chat = ChatOpenAI(
            base_url=url + "/v1", api_key="unused", model=model, temperature=0, max_tokens=200, max_retries=0, use_responses_api=of_responses
        )
        whole = chat.invoke(QUESTION)
        assert whole.text and whole.usage_metadata["output_tokens"] > 0, whole
        assert "".join(chunk.text for chunk in chat.stream(QUESTION)) == whole.text
        for method in ("json_schema", "function_calling"):
            found = chat.with_structured_output(Weather, method=method).invoke(QUESTION)
            assert isinstance(found, Weather), (method, found)
        found = chat.with_structured_output(SCHEMA, method="json_schema").invoke(QUESTION)
        Weather.model_validate(found)
        for choice in ("any", "weather"):
            bound = chat.bind_tools(list(tools.values()), tool_choice=choice, parallel_tool_calls=False)
            answer = bound.invoke(QUESTION)
            [call] = answer.tool_calls
            result = tools[call["name"]].invoke(call)
            assert isinstance(result, ToolMessage) and not answer.invalid_tool_calls, answer
            streamed = None
            for chunk in bound.stream(QUESTION):
                streamed = chunk if streamed is None else streamed + chunk
            assert [(found["name"], found["args"]) for found in streamed.tool_calls] == [(call["name"], call["args"])], streamed
        said = chat.bind_tools(list(tools.values()), tool_choice="none").invoke([HumanMessage(QUESTION), answer, result])
        assert said.text and not said.tool_calls, said


def by_litellm(url, model):
    # Otherwise it asks the network for prices.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    litellm.telemetry = False
    asked = dict(model=f"openai/{model}", api_base=url + "/v1", api_key="unused", max_tokens=64, temperature=0)
    messages = [{"role": "user", "content": QUESTION}]
    whole = litellm.completion(messages=messages, **asked)
    said = whole.choices[0].message.content
    assert said, whole
    pieces = litellm.completion(messages=messages, stream=True, **asked)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == said
    found = litellm.completion(messages=messages, response_format=Weather, **asked)
    Weather.model_validate_json(found.choices[0].message.content)
    tools = [{"type": "function", "function": function} for function in FUNCTIONS]
    called = litellm.completion(messages=messages, tools=tools, tool_choice="required", **(asked | dict(max_tokens=200)))
    for call in called.choices[0].message.tool_calls:
        checked(call.function.name, call.function.arguments)


CLIENTS = {"openai": by_openai, "langchain_openai": by_langchain, "litellm": by_litellm}


def main():
    from urllib.request import urlopen

    url = sys.argv[1].rstrip("/")
    with urlopen(url + "/v1/models") as reply:
        model = json.load(reply)["data"][0]["id"]
    passed = 0
    for package, check in CLIENTS.items():
        if importlib.util.find_spec(package) is None:
            print(f"{package} is not here: not tried")
            continue
        check(url, model)
        print(f"{package}: ok", flush=True)
        passed += 1
    assert passed, "none of the client libraries is here"
    print(f"{passed} passed, 0 failed")


if __name__ == "__main__":
    main()
