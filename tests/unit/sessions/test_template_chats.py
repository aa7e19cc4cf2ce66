"""Ten turns with each kind of template, and the exact number of rows that every turn computes.

What must be computed is told from the template's own text: a template that appends costs what it
adds and the reply's last token, which was never fed; any other, what stands behind the first place
where it says something else than was said.
"""

import pytest

from model.messages import ClaimReport, MissReason
from sessions.types import ReasoningPolicy
from tests.support.template_chat import TemplateChat
from tests.support.templates import tokenizer_of

COUNTED = ("One", "Two", "Three", "Four", "Five", "Six", "Seven")
ASKS = [f"{word}, and what then?" for word in COUNTED]
ASKS += ["Two\n\nlines", "שלום עולם", "é a̐ 🙂"]
ANSWERS = ["fine", "I do", "a, b and c", "well then", "no", "it is 5", "yes", "see below", "x", "y"]
CALL = '<tool_call>\n{"name": "f"}\n</tool_call>'


async def rows_of(chat: TemplateChat, ask: str, reply: str, **options) -> tuple[int, ClaimReport]:
    """Say it; the prompt's rows that the model was really given, and what was reported."""
    before = chat.engine.runner.num_rows
    turn = await chat.say(ask, reply, **options)
    rows = chat.engine.runner.num_rows - before
    num_reply = len(chat.log) - len(chat.engine.requests[-1].token_ids)
    assert turn.usage.num_rows_computed == rows
    assert turn.usage.claim.computed == rows - (num_reply - 1)
    return turn.usage.claim.computed, turn.usage.claim


APPENDING = [
    ("chatml", {}),
    ("chatml", {"instructions": "Be brief."}),
    ("chatml_named", {}),
    ("chatml_named", {"instructions": "Be brief."}),
    ("llama3", {}),
    ("llama3", {"instructions": "Be brief."}),
    ("gemma", {}),
    ("dated", {}),
    ("qwen3", {"reasoning": ReasoningPolicy.KEEP}),
    ("qwen3", {"reasoning": ReasoningPolicy.DROP}),  # whose replies here have none
    ("qwen3", {"reasoning": ReasoningPolicy.TEMPLATE}),
    ("numbered", {}),  # re-rendered, and found to have changed nothing
    ("tools", {}),
    ("mistral", {}),
]


@pytest.mark.parametrize("is_cut", [False, True], ids=["ended", "cut"])
@pytest.mark.parametrize(("name", "options"), APPENDING)
async def test_a_turn_computes_what_it_adds_and_the_last_replys_last_token(
    chatting, clock, name, options, is_cut
):
    async with chatting(name, **options) as chat:
        written = ""
        for number, (ask, answer) in enumerate(zip(ASKS, ANSWERS, strict=True)):
            clock.advance(100_000)  # the next day: a template's clock stands still all the same
            before, told = list(chat.log), written + (ANSWERS[number - 1] if number else "")
            written = chat.written(ask)

            computed, claim = await rows_of(chat, ask, answer, is_cut=is_cut)

            prompt = list(chat.engine.requests[-1].token_ids)
            if number == 0:
                assert (computed, claim.reason) == (len(prompt), MissReason.NEW)
                continue
            # Mistral's template writes a space in front of a reply that was sampled without one.
            added = tokenizer_of(name).encode(
                written[len(told) + (name == "mistral") :], add_special_tokens=False
            )
            new = added if is_cut else added[1:]  # the end token was sampled
            assert prompt == before + new
            assert computed == len(new) + 1
            assert (claim.reason, claim.diverged_at) == (None, None)


REASONED = [f"<think>\nlet me see\n</think>\n\n{answer}" for answer in ANSWERS]
OPENED = [reply.removeprefix("<think>\n") for reply in REASONED]
CALLED = [f"{answer} {CALL}" if i % 3 == 1 else answer for i, answer in enumerate(ANSWERS)]


@pytest.mark.parametrize(
    ("name", "options", "replies", "num_divergences"),
    [
        ("qwen3", {}, REASONED, 9),
        ("qwen3", {"instructions": "Be brief."}, REASONED, 9),
        ("qwen3_thinking", {}, OPENED, 9),
        ("mistral", {"instructions": "Be brief."}, ANSWERS, 9),
        ("tools", {}, CALLED, 3),
        ("numbered", {}, ANSWERS, 0),
    ],
)
async def test_a_template_that_rewrites_computes_from_where_it_differs(
    chatting, name, options, replies, num_divergences
):
    reported = []
    async with chatting(name, **options) as chat:
        for number, (ask, reply) in enumerate(zip(ASKS, replies, strict=True)):
            before, written = list(chat.log), chat.written(ask)
            same = chat.agreement(written)

            computed, claim = await rows_of(chat, ask, reply)

            prompt = list(chat.engine.requests[-1].token_ids)
            if number == 0:
                continue
            assert prompt[:same] == before[:same]
            assert computed == len(prompt) - min(same, len(before) - 1)
            is_diverged = same < len(before)
            assert claim.diverged_at == (same if is_diverged else None)
            assert claim.reason is (MissReason.DIVERGED if is_diverged else None)
            reported.append(is_diverged)
            if name != "mistral":
                assert chat.spoken(prompt) == written
    assert sum(reported) == num_divergences


@pytest.mark.parametrize(
    ("name", "replies"),
    [("qwen3", REASONED), ("qwen3_thinking", OPENED), ("chatml", REASONED), ("llama3", REASONED)],
)
async def test_reasoning_that_is_kept_is_never_computed_again(chatting, name, replies):
    async with chatting(name, reasoning=ReasoningPolicy.KEEP) as chat:
        for number, (ask, reply) in enumerate(zip(ASKS, replies, strict=True)):
            before = list(chat.log)

            computed, claim = await rows_of(chat, ask, reply, is_cut=number % 4 == 2)

            prompt = list(chat.engine.requests[-1].token_ids)
            if number == 0:
                continue
            assert prompt[: len(before)] == before
            assert computed == len(prompt) - len(before) + 1
            assert (claim.reason, claim.diverged_at) == (None, None)
            assert chat.spoken(before).endswith(replies[number - 1]) or chat.spoken(
                before[:-1]
            ).endswith(replies[number - 1])
