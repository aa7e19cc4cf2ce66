"""The client package and the real server, with the embedded model: everything a handle can do."""

import asyncio
import threading

import pytest

from splice import (
    AsyncClient,
    BadRequestError,
    Client,
    ConflictError,
    MetricsEvent,
    NotFoundError,
    TextDelta,
)

GREEDY = {"temperature": 0, "max_output_tokens": 12}
LONG = {"ignore_eos": True, "max_output_tokens": 1500}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
async def client(live_server):
    async with AsyncClient(live_server) as client:
        yield client


async def test_a_fork_goes_on_without_computing_the_past_again(client):
    session = await client.sessions.create(instructions="Be brief. " * 40)
    first = await session.send("What is the capital of Norway?", **GREEDY)
    fork = await session.fork(title="other")
    turn = await fork.send("And of Sweden?", **GREEDY)

    assert fork.info.forked_from == first.id
    assert fork.info.title == "other"
    # The new words and the reply's last token, which a turn always leaves to compute.
    assert turn.metrics.computed <= turn.usage.input_tokens - first.usage.input_tokens
    assert turn.metrics.reused >= first.usage.input_tokens
    assert [t.id for t in await fork.turns()] == [first.id, turn.id]
    assert [t.id for t in await session.turns()] == [first.id]


async def test_an_edit_and_another_reply_are_branches_that_can_be_gone_back_to(client):
    session = await client.sessions.create()
    first = await session.send("My name is Ann.", **GREEDY)
    asked = await session.send("What is my name?", **GREEDY)
    edited = await session.edit("What did I say?", **GREEDY)
    again = await session.regenerate(asked, **GREEDY)
    by_id = await session.edit("Who am I?", asked.id, **GREEDY)

    assert {t.parent_id for t in (asked, edited, again, by_id)} == {first.id}
    assert again.input_text == asked.input_text
    assert (edited.input_text, by_id.input_text) == ("What did I say?", "Who am I?")
    assert [t.id for t in await session.turns()] == [first.id, by_id.id]
    assert len(await session.turns(whole_tree=True)) == 5

    seen = await session.refresh()
    info = await session.move_head(asked, expected_revision=seen.revision)
    assert info.head == asked.id
    with pytest.raises(ConflictError) as caught:
        await session.move_head(first, expected_revision=info.revision - 1)
    assert (caught.value.code, caught.value.status) == ("revision_conflict", 409)
    assert caught.value.request_id


async def test_a_stopped_reply_is_kept_and_can_be_gone_on_with(client):
    session = await client.sessions.create()
    stream = session.stream("Tell me a long story.", **LONG)
    shown = ""
    async for event in stream:
        if isinstance(event, TextDelta):
            shown += event.delta
            if event.sequence_number == 10:
                stopped = await stream.stop()
    assert stream.turn.status == stopped.status == "cancelled"
    assert stream.turn.text == stopped.text == shown
    assert not (await session.refresh()).active

    longer = await session.go_on(max_output_tokens=5)
    assert longer.text.startswith(shown)
    assert longer.usage.output_tokens == stopped.usage.output_tokens + 5
    assert await session.stop() == []


async def test_what_others_began_is_stopped_and_read_as_well(client, live_server):
    session = await client.sessions.create()
    async with AsyncClient(live_server) as elsewhere:
        theirs = await elsewhere.sessions.get(session.id)
        stream = theirs.stream("Tell me a long story.", **LONG)
        begun = await anext(stream)
        reading = session.resume(begun.turn)
        first = await anext(reading)
        (stopped,) = await session.stop()
        mine = [first, *[event async for event in reading]]
        rest = [begun, *[event async for event in stream]]

    assert stopped.id == begun.turn.id
    assert [event.raw for event in mine] == [event.raw for event in rest]


async def test_history_is_what_was_said_and_can_be_added_to(client):
    session = await client.sessions.create()
    turn = await session.send("Hello!", **GREEDY)
    added = await session.add(
        [
            {"role": "user", "content": "By the way, I am Ann."},
            {"role": "assistant", "content": "Noted."},
        ]
    )
    answer = await session.send("Who am I?", **GREEDY)

    said = [(item.role, item.text) for item in await session.history()]
    assert said == [
        ("user", "Hello!"),
        ("assistant", turn.text),
        ("user", "By the way, I am Ann."),
        ("assistant", "Noted."),
        ("user", "Who am I?"),
        ("assistant", answer.text),
    ]
    assert [item.text for item in await session.history(limit=1)] == [answer.text]
    await session.remove(added[1])
    assert "Noted." not in [item.text for item in await session.history()]
    assert "Who am I?" in await session.markdown()
    usage = await session.usage()
    assert usage.output_tokens == turn.usage.output_tokens + answer.usage.output_tokens


async def test_where_its_state_is_can_be_seen_and_changed(client):
    session = await client.sessions.create(ttl_s=60.0, priority=2)
    turn = await session.send("Hello!", **GREEDY)

    tables = await session.kv()
    assert [table["response_id"] for table in tables["tables"]] == [turn.id]
    assert await session.park("disk")
    warmed = await session.warm(deadline_s=30)
    assert warmed["whole"]
    assert warmed["response_id"] == turn.id
    with pytest.raises(BadRequestError) as caught:
        await session.park("cpu")
    assert caught.value.code == "invalid_request"
    following = await session.send("And now?", **GREEDY)
    assert following.metrics.computed <= following.usage.input_tokens - turn.usage.input_tokens
    assert (session.info.ttl_s, session.info.priority) == (60.0, 2)


async def test_a_session_is_renamed_found_exported_deleted_and_brought_back(client):
    session = await client.sessions.create(title="Fjords", metadata={"team": "north"})
    await session.send("Which is the longest?", **GREEDY)
    assert (await session.rename("Long fjords")).title == "Long fjords"
    assert (await session.update(pinned=True, sampling={"temperature": 0.0})).pinned

    found = [found.id async for found in client.sessions.list(q="long fjords")]
    assert found == [session.id]
    copy = await client.sessions.bring_in(await session.export())
    assert [t.text for t in await copy.turns()] == [t.text for t in await session.turns()]
    assert copy.info.metadata == {"team": "north"}

    await session.delete()
    with pytest.raises(NotFoundError) as caught:
        await session.refresh()
    assert (caught.value.code, caught.value.status) == ("session_not_found", 404)
    assert (await client.sessions.restore(session.id)).info.title == "Long fjords"


async def test_openais_client_goes_on_with_the_same_conversation(client):
    session = await client.sessions.create()
    turn = await session.send("My name is Ann.", **GREEDY)
    async with session.openai() as openai:
        response = await openai.responses.create(
            input="What is my name?", temperature=0, max_output_tokens=12
        )
        counted = await openai.responses.input_tokens.count(input="And now?")
    last = await session.send("Thanks.", **GREEDY)

    assert response.conversation.id == session.id
    assert response.previous_response_id == turn.id
    assert response.usage.input_tokens_details.cached_tokens >= turn.usage.input_tokens
    assert last.parent_id == response.id
    assert counted.input_tokens > response.usage.input_tokens
    assert [item.type for item in await session.history()] == ["message"] * 6


async def test_an_agents_memory_is_an_ordinary_conversation(client):
    session = await client.sessions.create()
    memory = session.agents()
    assert memory.session_id == session.id
    assert await memory.get_items() == []
    assert await memory.pop_item() is None

    await memory.add_items(
        [
            {"role": "user", "content": "Is it raining?"},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "It rains."},
            {
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
            },
        ]
    )
    items = await memory.get_items()
    assert [item["type"] for item in items] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    # What came back may be put in again, as an agent's next run does with what it is shown.
    copy = (await client.sessions.create()).agents()
    await copy.add_items(items)
    assert [i.text for i in await session.history()] == [
        item.text for item in await (await client.sessions.get(copy.session_id)).history()
    ]

    assert [item["type"] for item in await memory.get_items(limit=2)] == [
        "function_call_output",
        "message",
    ]
    memory.session_settings = {"limit": 1}
    assert len(await memory.get_items()) == 1
    assert (await memory.pop_item())["content"][0]["text"] == "Yes."
    await memory.clear_session()
    memory.session_settings = None
    assert await memory.get_items() == []
    await memory.add_items([{"role": "user", "content": "Hello!"}])
    assert len(await memory.get_items()) == 1


def test_threads_talk_over_one_client_that_blocks(live_server):
    """Each in a session of its own, and one of them is stopped by another thread."""
    texts, long_ones = {}, []
    is_under_way = threading.Event()

    def talk(client, number):
        session = client.sessions.create()
        first = session.send(f"Say {number}.", **GREEDY)
        stream = session.stream("Again.", **GREEDY)
        pieces = [event.delta for event in stream if isinstance(event, TextDelta)]
        texts[number] = (first.text, "".join(pieces), stream.turn.text)

    def tell(session):
        stream = session.stream("Tell me a long story.", **LONG)
        for event in stream:
            if event.sequence_number == 8:
                is_under_way.set()
            assert not isinstance(event, MetricsEvent) or event.metrics.input_tokens
        long_ones.append(stream.turn)

    with Client(live_server) as client:
        story = client.sessions.create()
        threads = [threading.Thread(target=talk, args=(client, number)) for number in range(3)]
        threads.append(threading.Thread(target=tell, args=(story,)))
        for thread in threads:
            thread.start()
        assert is_under_way.wait(120)
        (stopped,) = story.stop()
        for thread in threads:
            thread.join(120)

    assert len(texts) == 3
    assert all(first and streamed == whole for first, streamed, whole in texts.values())
    assert [turn.id for turn in long_ones] == [stopped.id]
    assert long_ones[0].status == "cancelled"


async def test_sixteen_sessions_at_once_keep_apart(client):
    async def talk(number):
        session = await client.sessions.create()
        stream = session.stream(f"Say {number}.", **GREEDY)
        numbers = [event.sequence_number async for event in stream]
        assert numbers == list(range(len(numbers)))
        return session.id, stream.turn

    talks = await asyncio.gather(*map(talk, range(16)))

    assert len({session_id for session_id, _ in talks}) == 16
    assert all(turn.session_id == session_id for session_id, turn in talks)
    assert [turn.input_text for _, turn in talks] == [f"Say {n}." for n in range(16)]
