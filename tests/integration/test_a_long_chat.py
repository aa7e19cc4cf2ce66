"""Ten turns on the embedded model over REST, with every row counted that enters its embedding.

The count is the engine's hook on the embedding itself, read from `/metrics` around each turn, so
neither `usage` nor a turn's metrics can claim more than was saved.
"""

from dataclasses import dataclass

import pytest
from transformers import AutoTokenizer

from model.provision import DEFAULT_SHA256
from tests.support.live_server import MODELS
from tests.support.wire import Json, Wire, events_of, reply_of, wired

pytestmark = pytest.mark.timeout(300)

QUESTIONS = (
    "What is the capital of Norway?",
    "And of Sweden?",
    "Naïve café, 你好, 🙂: which of these is a drink?",
    "yes",
    "Write a line about the sea.\n\nThen one about the land.",
    "def f(x):\n    return x + 1\n\nWhat does it do?",
    "  Mind  the   spaces.  ",
    "Say nothing.",
    "Why?",
    "Thanks. Name a river, please, and the sea it flows into.",
)
END_ID, END_OF_TEXT_ID = 2, 0  # <|im_end|>, <|endoftext|>
# Of the two ends only the template's own, so that a completed reply has sampled `<|im_end|>`.
GREEDY = {"temperature": 0, "logit_bias": {str(END_OF_TEXT_ID): -100}}


def asked(number: int) -> Json:
    """How turn `number` is drawn: some end by themselves, some are cut, one says nothing."""
    if number == 7:
        return {**GREEDY, "logit_bias": {str(END_ID): 100}, "max_output_tokens": 5}
    if number % 3 == 1:
        never = {str(END_OF_TEXT_ID): -100, str(END_ID): -100}
        return {**GREEDY, "logit_bias": never, "max_output_tokens": 5 + number}
    return {**GREEDY, "max_output_tokens": 20}


@dataclass
class Meter:
    """Turns, and the rows that each of them sent into the embedding."""

    wire: Wire

    async def turn(self, path: str, body: Json) -> tuple[Json, int]:
        before = await self.rows()
        turn = await self.wire.call("POST", path, body)
        return turn, await self.rows() - before

    async def rows(self) -> int:
        return await self.wire.count("splice_computed_rows_total")


@dataclass
class Told:
    """What a turn says of itself; whatever it says twice must be said alike."""

    input: int
    cached: int
    computed: int
    output: int
    rows: int

    @classmethod
    def by(cls, turn: Json) -> "Told":
        usage, metrics = turn["usage"], turn["splice"]["metrics"]
        details = usage["input_tokens_details"]
        told = cls(
            usage["input_tokens"],
            details["cached_tokens"],
            details["cache_write_tokens"],
            usage["output_tokens"],
            metrics["rows_computed"],
        )
        assert told.cached + told.computed == told.input == metrics["input_tokens"]
        assert metrics["output_tokens"] == told.output
        kv = metrics["kv"]
        assert (kv["reused"], kv["device"], kv["computed"]) == (
            told.cached,
            told.cached,
            told.computed,
        )
        return told

    @property
    def total(self) -> int:
        return self.input + self.output


@pytest.fixture(scope="module")
def tokenizer(live_server):
    """The embedded model's, as transformers reads it; the server has unpacked it by now."""
    folder = next(MODELS.glob(f"prepared/{DEFAULT_SHA256[:16]}-*/tokenizer.json")).parent
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


@pytest.fixture
async def meter(live_server):
    async with wired(live_server) as wire:
        yield Meter(wire)


def rendered_behind(tokenizer, before: Json, question: str) -> int:
    """How many tokens a question adds behind a turn, written by hand in the model's ChatML."""
    # A reply that ended by itself has sampled its own `<|im_end|>`; a cut one has none yet.
    closing = "\n" if before["status"] == "completed" else "<|im_end|>\n"
    text = f"{closing}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    return len(tokenizer.encode(text, add_special_tokens=False))


def block_ids(table: Json) -> list[int]:
    return [block["block_id"] for block in table["blocks"]]


async def test_from_the_second_turn_on_exactly_the_new_tokens_are_computed(meter, tokenizer):
    session = await meter.wire.new_session(instructions="You are brief.")
    path = f"/v1/sessions/{session}/turns"
    statuses, before, table = [], None, None
    for number, question in enumerate(QUESTIONS):
        turn, num_rows = await meter.turn(path, {"input": question, **asked(number)})
        told = Told.by(turn)
        statuses.append(turn["status"])
        # Every sampled token is fed but for the last, which the next turn will feed.
        assert told.rows == num_rows == told.computed + told.output - 1
        if before is not None and table is not None:
            num_new = rendered_behind(tokenizer, before, question)
            assert told.input == Told.by(before).total + num_new
            assert told.computed == num_new + 1
            assert turn["splice"]["metrics"]["kv"]["reason"] is None
            longer = await meter.wire.table(session, turn["id"])
            assert block_ids(longer)[: len(table["blocks"])] == block_ids(table)
        before, table = turn, await meter.wire.table(session, turn["id"])
        assert table["num_computed_tokens"] == table["num_tokens"] - 1 == told.total - 1
        print(f"turn {number + 1}: {told}, {num_rows} rows entered the embedding")

    assert {*statuses} == {"completed", "incomplete"}
    tables = (await meter.wire.call("GET", f"/v1/sessions/{session}/kv"))["tables"]
    assert [t["response_id"] for t in tables] == [before["id"]]  # one table was handed on


async def test_a_fork_and_a_second_reply_compute_no_history(meter, tokenizer):
    wire = meter.wire
    session = await wire.new_session(instructions="You are brief, and this is a long instruction.")
    path = f"/v1/sessions/{session}/turns"
    await wire.say(session, "Tell me about fjords.", **GREEDY, max_output_tokens=20)
    second = await wire.say(session, "Go on.", **GREEDY, max_output_tokens=20)
    table = await wire.table(session, second["id"])

    fork = (await wire.call("POST", f"/v1/sessions/{session}/fork", {}))["id"]
    third, num_rows = await meter.turn(
        f"/v1/sessions/{fork}/turns", {"input": "In other words?", **GREEDY, "max_output_tokens": 6}
    )
    told = Told.by(third)
    assert told.computed == rendered_behind(tokenizer, second, "In other words?") + 1
    assert told.rows == num_rows == told.computed + told.output - 1
    num_shared = (Told.by(second).total - 1) // 16
    forked = await wire.table(fork, third["id"])
    assert block_ids(forked)[:num_shared] == block_ids(table)[:num_shared]
    assert not {*block_ids(forked)[num_shared:]} & {*block_ids(table)}
    assert all(block["num_holders"] == 2 for block in forked["blocks"][:num_shared])
    assert block_ids(await wire.table(session, second["id"])) == block_ids(table)

    again, num_rows = await meter.turn(
        f"{path}/{second['id']}/regenerate", {**GREEDY, "max_output_tokens": 20}
    )
    told = Told.by(again)
    assert (told.computed, told.rows) == (1, num_rows)  # what the first new token is drawn from
    assert num_rows == told.output
    assert reply_of(again) == reply_of(second)
    assert block_ids(await wire.table(session, second["id"])) == block_ids(table)


async def test_two_conversations_share_the_blocks_of_the_same_instructions(meter):
    instructions = "Answer as a lighthouse keeper would, who has seen every storm. " * 4
    told = []
    for question in ("Who are you?", "Is it cold?"):
        session = await meter.wire.new_session(instructions=instructions)
        body = {"input": question, **GREEDY, "max_output_tokens": 4}
        turn, num_rows = await meter.turn(f"/v1/sessions/{session}/turns", body)
        told.append(Told.by(turn))
        assert told[-1].rows == num_rows

    assert told[0].cached < 16 < told[1].cached
    assert told[1].cached % 16 == 0
    assert told[1].computed < 32


async def test_a_reply_cut_at_a_stop_string_is_counted_too(meter):
    session = await meter.wire.new_session()
    path = f"/v1/sessions/{session}/turns"
    stopped = {"stop": ["e"], "seed": 2, "max_output_tokens": 30}
    turn, num_rows = await meter.turn(path, {"input": "Tell me about the weather.", **stopped})
    told = Told.by(turn)
    assert told.rows == num_rows
    assert "e" not in reply_of(turn)

    # The kept part of the cut token was encoded anew: that alone is computed again.
    turn, num_rows = await meter.turn(path, {"input": "Go on.", **GREEDY, "max_output_tokens": 2})
    after = Told.by(turn)
    assert after.rows == num_rows
    assert told.total - 4 <= after.cached <= told.total - 1


async def test_a_cancelled_reply_is_counted_and_goes_on_where_it_was_cut(meter):
    session = await meter.wire.new_session()
    path = f"/v1/sessions/{session}/turns"
    before = await meter.rows()
    body = {"input": "Count to a thousand.", "ignore_eos": True, "max_output_tokens": 400}
    turn_id = ""
    async with meter.wire.http.post(path, json={**body, "stream": True}) as answer:
        async for event in events_of(answer):
            if event.get("sequence_number") == 8:
                await meter.wire.call("POST", f"{path}/{turn_id}/cancel")
            turn_id = event["response"]["id"] if "response" in event else turn_id
    cancelled = event["response"]
    told = Told.by(cancelled)
    assert cancelled["status"] == "cancelled"
    assert told.rows == await meter.rows() - before == told.computed + told.output - 1

    turn, num_rows = await meter.turn(path, {"input": "Stop.", **GREEDY, "max_output_tokens": 2})
    after = Told.by(turn)
    assert (after.cached, after.rows) == (told.total - 1, num_rows)


async def test_the_books_balance_after_all_that(meter):
    cache = await meter.wire.call("GET", "/v1/cache")

    assert sum(cache["blocks"].values()) == cache["num_blocks"]
    assert cache["blocks"]["running"] == 0
    assert await meter.wire.count("splice_books_failures_total") == 0
