"""LangChain's `ChatOpenAI` over both of OpenAI's surfaces, and LangGraph's loop around it."""

from itertools import pairwise
from typing import Annotated, Literal, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph, add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel

BLOCK = 16  # tokens; what is equal is reused by whole blocks
STORY = "My name is Ann and I live in Oslo, where it has been raining for most of the last week."


@tool
def weather(city: Literal["Oslo", "Bergen"]) -> str:
    """Says what the weather is like."""
    return f"It rains in {city}."


class Report(BaseModel):
    """How a city is."""

    city: Literal["Oslo", "Bergen"]
    degrees: Literal[1, 2, 3]


def model(base_url, **more):
    given = {"max_tokens": 1000, "stream_usage": True, **more}
    return ChatOpenAI(base_url=base_url, api_key="any", model="default", **given)


both = pytest.mark.parametrize("uses_responses", [False, True], ids=["chat", "responses"])


@both
async def test_it_answers_whole_and_in_pieces(base_url, uses_responses):
    llm = model(base_url, use_responses_api=uses_responses, max_tokens=16)
    # The second time, with its prompt cached: so it is when it is streamed, to the last bit.
    for _ in range(2):
        whole = await llm.ainvoke(STORY)
    pieces = [piece async for piece in llm.astream(STORY)]

    added = pieces[0]
    for piece in pieces[1:]:
        added += piece
    assert whole.text
    assert added.text == whole.text
    assert len(pieces) > 3
    for message in (whole, added):
        usage = message.usage_metadata
        assert usage["input_tokens"] + usage["output_tokens"] == usage["total_tokens"]
    details = added.usage_metadata["input_token_details"]
    assert details["cache_read"] >= added.usage_metadata["input_tokens"] - BLOCK


@both
async def test_a_call_and_its_result_go_there_and_back(base_url, uses_responses):
    llm = model(base_url, use_responses_api=uses_responses)
    calling = llm.bind_tools([weather], tool_choice="any", parallel_tool_calls=False)
    asked = [HumanMessage("How is Oslo?")]
    streamed = None
    async for piece in calling.astream(asked):
        streamed = piece if streamed is None else streamed + piece

    (call,) = streamed.tool_calls
    assert call["name"] == "weather"
    assert call["args"]["city"] in ("Oslo", "Bergen")
    results = [
        ToolMessage(weather.invoke(one["args"]), tool_call_id=one["id"])
        for one in streamed.tool_calls
    ]
    answer = await llm.bind_tools([weather], tool_choice="none", max_tokens=16).ainvoke(
        [*asked, streamed, *results]
    )
    assert answer.text
    assert not answer.tool_calls


@both
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
async def test_an_answer_has_the_type_that_was_asked_for(base_url, uses_responses, method):
    llm = model(base_url, use_responses_api=uses_responses)

    report = await llm.with_structured_output(Report, method=method).ainvoke("How warm is Oslo?")

    assert isinstance(report, Report)


async def test_only_what_is_new_is_sent_behind_the_previous_response(base_url, client):
    llm = model(base_url, use_previous_response_id=True, max_tokens=16)
    said = [HumanMessage(STORY)]
    first = await llm.ainvoke(said)
    said += [first, HumanMessage("What is my name?")]
    second = await llm.ainvoke(said)

    stored = await client.responses.retrieve(second.response_metadata["id"])
    assert stored.previous_response_id == first.response_metadata["id"]
    assert len(stored.input) == 1
    reusable = first.usage_metadata["total_tokens"] - 1
    assert second.usage_metadata["input_token_details"]["cache_read"] >= 0.95 * reusable


class State(TypedDict):
    """What the graph hands on."""

    messages: Annotated[list[AnyMessage], add_messages]


def graph_of(llm):
    """A loop that calls once behind every question, and then answers."""
    calling = llm.bind_tools([weather], tool_choice="any", parallel_tool_calls=False)
    talking = llm.bind_tools([weather], tool_choice="none", max_tokens=16)

    async def answer(state: State) -> State:
        is_asked = isinstance(state["messages"][-1], HumanMessage)
        return {"messages": [await (calling if is_asked else talking).ainvoke(state["messages"])]}

    graph = StateGraph(State)
    graph.add_node("answer", answer)
    graph.add_node("tools", ToolNode([weather]))
    graph.add_edge(START, "answer")
    graph.add_conditional_edges("answer", tools_condition)
    graph.add_edge("tools", "answer")
    return graph.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("fields", [{}, {"use_previous_response_id": True}], ids=["chat", "chain"])
async def test_a_graph_loops_and_goes_on_from_its_checkpoint(base_url, fields):
    graph = graph_of(model(base_url, **fields))
    config = {"configurable": {"thread_id": "ann"}}
    tokens = []
    for question in ("How is Oslo?", "And Bergen?", "And now?"):
        asked = {"messages": [HumanMessage(question)]}
        async for message, _ in graph.astream(asked, config, stream_mode="messages"):
            if isinstance(message, AIMessage):
                tokens.append(message.text)

    said = (await graph.aget_state(config)).values["messages"]
    assert "".join(tokens)
    rounds = [m for m in said if isinstance(m, AIMessage)]
    assert [bool(m.tool_calls) for m in rounds] == [True, False] * 3
    for before, after in pairwise(rounds):
        reusable = before.usage_metadata["total_tokens"] - 1
        assert after.usage_metadata["input_token_details"]["cache_read"] >= 0.95 * reusable
