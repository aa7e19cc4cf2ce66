"""Responses, asked for by OpenAI's own unmodified client."""

import openai
import pytest

from tests.support.fake_engine import FakeReply


async def test_a_response_is_made_read_and_deleted(front, client):
    made = await client.responses.create(
        model="default", input="Where?", instructions="Be brief.", metadata={"a": "b"}, user="u"
    )

    assert made.output_text == "Hello"
    assert made.status == "completed"
    assert made.usage.input_tokens_details.cache_write_tokens > 0
    assert (made.instructions, made.metadata, made.user) == ("Be brief.", {"a": "b"}, "u")
    assert made.conversation.id.startswith("conv_")
    read = await client.responses.retrieve(made.id)
    assert read.to_dict() == made.to_dict()
    await client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made.id)
    _, sessions = await front.call("GET", "/v1/sessions?listed=false")
    assert sessions["data"] == []


async def test_the_model_is_asked_for_no_title_of_what_a_response_forks(front, client):
    session = (await front.session())["id"]
    first = await front.say(session)
    await front.say(session)
    made = await client.responses.create(input="x", previous_response_id=first["id"])
    by_hand = (await front.call("POST", f"/v1/sessions/{session}/fork", json={}))[1]
    _, fork = await front.call("GET", f"/v1/sessions/{made.conversation.id}")

    assert fork["forked_from"] == first["id"]
    assert (fork["auto_title"], fork["listed"]) == (False, False)
    assert (by_hand["auto_title"], by_hand["listed"]) == (True, True)


@pytest.mark.parametrize("opens", ["/v1/conversations", "/v1/sessions"])
async def test_what_somebody_opened_outlives_its_responses(front, client, opens):
    place = (await front.call("POST", opens, json={}))[1]["id"]
    for _ in range(2):
        made = await client.responses.create(input="x", conversation=place)
        assert made.previous_response_id is None
        await client.responses.delete(made.id)

    assert (await client.conversations.items.list(place)).data == []


async def test_a_stream_has_the_whole_sequence_of_events(client):
    events = [e async for e in await client.responses.create(input="Where?", stream=True)]

    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert [e.type for e in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "splice:metrics",
        "response.completed",
    ]
    assert events[-1].response.output_text == "Hello"


async def test_the_clients_own_accumulator_takes_the_stream(client):
    async with client.responses.stream(model="default", input="Where?") as stream:
        async for _ in stream:
            pass
        assert (await stream.get_final_response()).output_text == "Hello"


async def test_a_chain_goes_on_in_one_session_and_forks_where_it_is_left(front, client):
    first = await client.responses.create(input="one")
    second = await client.responses.create(input="two", previous_response_id=first.id)
    other = await client.responses.create(input="other", previous_response_id=first.id)

    assert second.conversation == first.conversation
    assert other.conversation != first.conversation
    for made in (second, other):
        assert made.previous_response_id == first.id
        assert front.engine.requests[-1].token_ids[:5] == front.engine.requests[0].token_ids[:5]
    assert second.usage.input_tokens_details.cached_tokens > 0
    assert other.usage.input_tokens_details.cached_tokens > 0


async def test_instructions_are_the_responses_own(front, client):
    first = await client.responses.create(input="one", instructions="Be brief.")
    same = await client.responses.create(
        input="two", instructions="Be brief.", previous_response_id=first.id
    )
    none = await client.responses.create(input="three", previous_response_id=same.id)

    briefed, again, plain = (request.token_ids for request in front.engine.requests)
    assert again[: len(briefed)] == briefed
    assert plain[: len(briefed)] != briefed
    assert none.prompt_cache_diagnostics.type in ("cache_miss", "cache_hit")


async def test_an_unknown_parent_is_a_bad_request_that_names_it(client):
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(input="x", previous_response_id="resp_0")

    assert caught.value.code == "previous_response_not_found"
    assert caught.value.param == "previous_response_id"


async def test_a_parent_and_a_conversation_exclude_each_other(client):
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(
            input="x", previous_response_id="resp_0", conversation="conv_0"
        )

    assert caught.value.param == "previous_response_id"


async def test_what_is_not_stored_is_not_found_and_leaves_nothing(front, client):
    first = await client.responses.create(input="one", store=False)

    assert (first.store, first.conversation, first.output_text) == (False, None, "Hello")
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError):
        await client.responses.create(input="two", previous_response_id=first.id)
    _, sessions = await front.call("GET", "/v1/sessions?listed=false")
    assert sessions["data"] == []
    assert front.engine.released


async def test_what_is_not_stored_may_follow_what_is(front, client):
    first = await client.responses.create(input="one")
    second = await client.responses.create(input="two", previous_response_id=first.id, store=False)

    assert second.usage.input_tokens_details.cached_tokens > 0
    one, two = front.engine.requests
    assert two.token_ids[: len(one.token_ids)] == one.token_ids
    assert two.origin_conversation_id == first.conversation.id


async def test_a_response_in_the_background_is_polled_and_resumed(front, client):
    front.engine.default = FakeReply(pieces=("a", "b", "c"), holds_after=1)
    made = await client.responses.create(input="x", background=True)
    assert made.status in ("queued", "in_progress")
    await front.engine.held(made.id)

    front.engine.let_go()
    stream = await client.responses.retrieve(made.id, stream=True, starting_after=3)
    events = [e async for e in stream]

    assert [e.sequence_number for e in events] == list(range(4, 4 + len(events)))
    assert events[-1].response.output_text == "abc"
    assert (await client.responses.retrieve(made.id)).status == "completed"


async def test_who_leaves_the_stream_ends_the_response_and_keeps_what_it_said(front, client):
    front.engine.default = FakeReply(pieces=("a", "b", "c"), holds_after=2)
    stream = await client.responses.create(input="x", stream=True)
    async for event in stream:
        if event.type == "response.created":
            response_id = event.response.id
        if event.type == "response.output_text.delta" and event.delta == "b":
            break
    await stream.close()

    left = [e async for e in await client.responses.retrieve(response_id, stream=True)]
    assert left[-1].type == "response.incomplete"
    assert left[-1].response.status == "cancelled"
    assert left[-1].response.output_text == "ab"


async def test_a_running_response_is_cancelled(front, client):
    front.engine.default = FakeReply(pieces=("a", "b"), holds_after=1)
    made = await client.responses.create(input="x", background=True)
    await front.engine.held(made.id)

    ended = await client.responses.cancel(made.id)

    assert (ended.status, ended.output_text) == ("cancelled", "a")


async def test_input_items_are_listed_by_page(client):
    said = [{"role": "user", "content": str(n)} for n in range(5)]
    made = await client.responses.create(input=said)

    pages = await client.responses.input_items.list(made.id, limit=2, order="asc")
    texts = [item.content[0].text async for item in pages]

    assert texts == ["0", "1", "2", "3", "4"]


async def test_an_item_is_put_in_again_by_its_id(front, client):
    first = await client.responses.create(input="unusual words")
    item = (await client.responses.input_items.list(first.id)).data[0]

    await client.responses.create(input=[{"type": "item_reference", "id": item.id}])

    one, two = front.engine.requests
    assert one.token_ids == two.token_ids


async def test_tokens_are_counted_and_nothing_is_kept(front, client):
    first = await client.responses.create(input="one")
    counted = await client.responses.input_tokens.count(input="two", previous_response_id=first.id)
    second = await client.responses.create(input="two", previous_response_id=first.id)

    assert counted.input_tokens == second.usage.input_tokens
    assert len(front.engine.requests) == 2


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0]",
        ),
        ({"input": [{"type": "computer_call_output"}]}, "input[0]"),
        ({"input": "x", "prompt": {"id": "p"}}, "prompt"),
        ({"input": []}, "input"),
        ({}, "input"),
        ({"input": "x", "background": True, "store": False}, "background"),
        ({"input": "x", "model": "gpt-none"}, "model"),
        ({"input": "x", "temperature": 9}, "temperature"),
        ({"input": [{"type": "item_reference", "id": "msg_0"}]}, "input[0]"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_by_name(front, fields, param):
    status, answer = await front.call("POST", "/v1/responses", json=fields)

    assert status in (400, 404)
    assert answer["error"]["param"] == param
    assert not front.engine.requests
    assert (await front.call("GET", "/v1/sessions?listed=false"))[1]["data"] == []


async def test_unknown_fields_are_ignored(client):
    extra = {"moderation": {}, "verbosity": "low", "access_programs": []}
    made = await client.responses.create(input="x", extra_body=extra)

    assert made.status == "completed"


async def test_a_sessions_own_instructions_hold_where_a_response_has_none(front, client):
    session = await front.session(instructions="Be brief.")
    counted = await client.responses.input_tokens.count(input="x", conversation=session["id"])
    unstored = await client.responses.create(input="x", conversation=session["id"], store=False)
    stored = await client.responses.create(input="x", conversation=session["id"])
    await client.responses.create(input="x", instructions="Be brief.")

    first, second, same = (request.token_ids for request in front.engine.requests)
    assert first == second == same
    assert counted.input_tokens == unstored.usage.input_tokens == stored.usage.input_tokens


async def test_a_response_in_the_background_waits_first(client):
    events = [
        event
        async for event in await client.responses.create(input="x", background=True, stream=True)
    ]

    assert [(e.type, e.response.status) for e in events[:3]] == [
        ("response.created", "queued"),
        ("response.queued", "queued"),
        ("response.in_progress", "in_progress"),
    ]
    assert [e.sequence_number for e in events] == list(range(len(events)))
    again = [e async for e in await client.responses.retrieve(events[0].response.id, stream=True)]
    assert [e.to_dict() for e in again] == [e.to_dict() for e in events]


async def test_single_responses_fill_no_list_until_they_are_named(front, client):
    mine = await client.conversations.create()
    first = await client.responses.create(input="one")
    await client.responses.create(input="two", previous_response_id=first.id)
    fork = await client.responses.create(input="three", previous_response_id=first.id)

    async def listed(query=""):
        sessions = (await front.call("GET", f"/v1/sessions{query}"))[1]["data"]
        return {session["id"]: session["listed"] for session in sessions}

    quiet = {first.conversation.id: False, fork.conversation.id: False}
    assert await listed() == await listed("?listed=true") == {mine.id: True}
    assert await listed("?listed=false") == quiet
    path = f"/v1/sessions/{fork.conversation.id}"
    await front.call("PATCH", path, json={"title": "Found"})
    assert fork.conversation.id in await listed()
    await front.call("PATCH", path, json={"listed": False})
    assert await listed("?listed=false") == quiet
    assert (await front.call("GET", "/v1/search?q=three"))[1]["data"]
