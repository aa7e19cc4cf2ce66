"""Conversations, kept by OpenAI's own unmodified client."""

import openai
import pytest

from tests.support.fake_engine import FakeReply

ONE = {"type": "message", "role": "user", "content": "one"}
TWO = {"type": "message", "role": "assistant", "content": "two"}
THREE = {"type": "message", "role": "user", "content": "three"}


async def texts(client, conversation_id, **asked):
    page = await client.conversations.items.list(conversation_id, **asked)
    return [item.content[0].text async for item in page]


async def test_a_conversation_is_made_read_changed_and_deleted(front, client):
    made = await client.conversations.create(metadata={"a": "b"}, items=[])
    assert (await client.conversations.retrieve(made.id)).metadata == {"a": "b"}

    changed = await client.conversations.update(made.id, metadata={"c": "d"})
    assert changed.metadata == {"c": "d"}
    _, session = await front.call("GET", f"/v1/sessions/{made.id}")
    assert session["metadata"] == {"c": "d"}

    gone = await client.conversations.delete(made.id)
    assert (gone.object, gone.deleted) == ("conversation.deleted", True)
    with pytest.raises(openai.NotFoundError):
        await client.conversations.retrieve(made.id)


async def test_a_conversation_whose_items_are_refused_is_not_left_behind(front, client):
    with pytest.raises(openai.BadRequestError) as caught:
        await client.conversations.create(items=[ONE, {**TWO, "content": "a\0b"}])

    assert "NUL" in caught.value.message
    for listed in ("true", "false"):
        assert not (await front.call("GET", f"/v1/sessions?listed={listed}"))[1]["data"]


async def test_items_are_put_in_listed_by_page_and_shown(client):
    made = await client.conversations.create(items=[ONE, TWO])
    added = await client.conversations.items.create(made.id, items=[THREE])

    assert await texts(client, made.id, order="asc", limit=2) == ["one", "two", "three"]
    assert await texts(client, made.id) == ["three", "two", "one"]
    assert await texts(client, made.id, after=added.data[0].id) == ["two", "one"]
    shown = await client.conversations.items.retrieve(added.data[0].id, conversation_id=made.id)
    assert shown.content[0].text == "three"


async def test_a_response_in_a_conversation_follows_its_items_and_adds_its_own(front, client):
    made = await client.conversations.create(items=[ONE, TWO])

    response = await client.responses.create(input="three", conversation=made.id)

    assert response.conversation.id == made.id
    assert await texts(client, made.id, order="asc") == ["one", "two", "three", "Hello"]
    whole = await client.responses.create(input=[ONE, TWO, THREE])
    assert front.engine.requests[0].token_ids == front.engine.requests[1].token_ids
    assert whole.output_text == "Hello"


async def test_items_put_in_behind_a_reply_are_what_the_next_one_follows(front, client):
    made = await client.conversations.create()
    await client.responses.create(input="one", conversation={"id": made.id})
    await client.conversations.items.create(made.id, items=[THREE])
    await client.responses.create(input="more", conversation=made.id)
    await client.responses.create(input="again", conversation=made.id)

    said = ["one", "Hello", "three", "more", "Hello", "again", "Hello"]
    assert await texts(client, made.id, order="asc") == said
    first, second, third = (request.token_ids for request in front.engine.requests)
    assert second[: len(first)] == first
    assert third[: len(second)] == second


async def test_the_conversation_goes_on_without_an_item_that_was_taken_out(front, client):
    made = await client.conversations.create()
    await client.responses.create(input="secret", conversation=made.id)
    item = (await client.conversations.items.list(made.id, order="asc")).data[0]

    left = await client.conversations.items.delete(item.id, conversation_id=made.id)

    assert left.object == "conversation"
    assert await texts(client, made.id) == ["Hello"]
    with pytest.raises(openai.NotFoundError):
        await client.conversations.items.retrieve(item.id, conversation_id=made.id)
    await client.responses.create(input="more", conversation=made.id)
    await client.responses.create(input="again", conversation=made.id)
    without = await client.responses.create(
        input=[{"role": "assistant", "content": "Hello"}, {"role": "user", "content": "more"}]
    )
    _, second, third, anew = (request.token_ids for request in front.engine.requests)
    assert second == anew
    assert third[: len(second)] == second
    assert without.status == "completed"


async def test_the_last_item_can_be_popped_and_said_otherwise(client):
    made = await client.conversations.create(items=[ONE, THREE])
    last = (await client.conversations.items.list(made.id, limit=1)).data[0]
    await client.conversations.items.delete(last.id, conversation_id=made.id)
    await client.conversations.items.create(made.id, items=[TWO])

    assert await texts(client, made.id, order="asc") == ["one", "two"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"items": []}, "items"),
        ({"items": [ONE] * 21}, "items"),
        ({"items": [{"type": "computer_call"}]}, "items[0]"),
        ({"items": "x"}, "items"),
    ],
)
async def test_items_that_cannot_be_put_in_are_refused_by_name(front, client, body, param):
    made = await client.conversations.create()

    status, answer = await front.call("POST", f"/v1/conversations/{made.id}/items", json=body)

    assert (status, answer["error"]["param"]) == (400, param)


@pytest.mark.parametrize("spelling", ["include[]", "include"])
async def test_what_is_to_be_included_may_be_spelt_either_way(front, client, spelling):
    made = await client.conversations.create(items=[ONE])

    path = f"/v1/conversations/{made.id}/items?{spelling}=reasoning.encrypted_content"
    assert (await front.call("GET", path))[0] == 200
    path = f"/v1/conversations/{made.id}/items?{spelling}=message.output_text.logprobs"
    status, answer = await front.call("GET", path)
    assert (status, answer["error"]["param"]) == (400, "include")


async def test_every_page_of_a_branch_across_a_fork_has_its_items_once(front, client):
    made = await client.conversations.create(items=[{"role": "user", "content": "zero"}])
    for text in ("one", "two"):
        await client.responses.create(input=text, conversation=made.id)
    head = (await front.call("GET", f"/v1/sessions/{made.id}"))[1]["head"]
    (await front.call("POST", f"/v1/sessions/{made.id}/turns/{head}/regenerate"))
    fork = (await front.call("POST", f"/v1/sessions/{made.id}/fork", json={}))[1]["id"]
    await client.responses.create(input="three", conversation=fork)
    gone = [item async for item in client.conversations.items.list(fork, order="asc")][1]
    # What lies before the fork is the origin's: taken out there, it is gone from the fork's, too.
    await client.conversations.items.delete(gone.id, conversation_id=made.id)

    expected = ["zero", "Hello", "two", "Hello", "three", "Hello"]
    for limit in (1, 2, 4, 100):
        for order, texts in (("asc", expected), ("desc", expected[::-1])):
            pages = client.conversations.items.list(fork, order=order, limit=limit)
            items = [item async for item in pages]
            assert [item.content[0].text for item in items] == texts
            assert len({item.id for item in items}) == len(items)


@pytest.mark.parametrize("items", [[], [{"role": "user", "content": "x"}]])
async def test_a_page_behind_an_item_that_is_not_there_is_refused(front, client, items):
    made = await client.conversations.create(items=items)

    status, answer = await front.call("GET", f"/v1/conversations/{made.id}/items?after=msg_0")

    assert (status, answer["error"]["param"]) == (400, "after")


async def test_a_running_turn_is_no_part_of_the_conversation_yet(front, client):
    made = await client.conversations.create()
    front.engine.replies.append(FakeReply(pieces=("a", "b"), holds_after=1))
    running = await client.responses.create(input="x", conversation=made.id, background=True)
    await front.engine.held(running.id)

    assert (await client.conversations.items.list(made.id)).data == []
    front.engine.let_go()
    async for _ in await client.responses.retrieve(running.id, stream=True):
        pass
    assert len((await client.conversations.items.list(made.id)).data) == 2
