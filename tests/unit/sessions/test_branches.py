"""Edit, rewind and regenerate over the real engine core: at token precision, one copied block at
the most, and nothing of the history computed again."""

import pytest

from model.messages import MissReason
from sessions.errors import TurnNotEndedError
from sessions.token_log import common_prefix
from sessions.types import ReasoningPolicy
from tests.support.core_engine import BLOCK_SIZE
from tests.support.template_chat import TemplateChat

every_kind = pytest.mark.parametrize(
    ("name", "options"),
    [
        ("chatml", {}),
        ("chatml_named", {"instructions": "Be brief."}),
        ("llama3", {}),
        ("gemma", {}),
        ("mistral", {}),
        ("numbered", {}),
        ("qwen3", {"reasoning": ReasoningPolicy.KEEP}),
    ],
)


async def branch(chat: TemplateChat, text: str, parent, *known: list[int]):
    """Say something behind another turn than the last: the turn, its prompt, and what it shares
    with the logs that are in the cache."""
    copies = chat.engine.runner.num_copies
    turn = await chat.chat.say(
        text,
        parent=None if parent is None else parent.id,
        parent_given=True,
        params=chat.script("other"),
    )
    assert chat.engine.runner.num_copies - copies <= 1
    prompt = chat.engine.requests[-1].token_ids
    # The last id of a log has no keys and values.
    shared = max(common_prefix(prompt, log[:-1]) for log in known)
    return turn, prompt, min(shared, len(prompt) - 1)


@every_kind
async def test_an_edit_computes_only_what_it_says_otherwise(chatting, name, options):
    async with chatting(name, **options) as chat:
        first = await chat.say("One", "fine")
        await chat.say("Two, as it was meant", "well")
        log = chat.log

        edited, prompt, shared = await branch(chat, "Two, as it was not", first, log)

        assert edited.usage.claim.computed == len(prompt) - shared
        # Shared is also what stands in front of the words that differ.
        assert chat.spoken(prompt[:shared]).rstrip().endswith("as it was")
        assert edited.parent_id == first.id
        assert [t.id for t in await chat.chat.turns()] == [first.id, edited.id]
        assert len(await chat.chat.turns(whole_tree=True)) == 3


@every_kind
async def test_an_edit_of_the_first_turn_shares_what_the_template_says_before(
    chatting, name, options
):
    async with chatting(name, **options) as chat:
        await chat.say("One, as it was meant", "fine")
        log = chat.log

        edited, prompt, shared = await branch(chat, "One, as it was not", None, log)

        assert edited.usage.claim.computed == len(prompt) - shared
        assert chat.spoken(prompt[:shared]).rstrip().endswith("as it was")
        assert edited.parent_id is None


@every_kind
async def test_a_rewind_goes_on_from_the_middle_of_a_block(chatting, name, options):
    async with chatting(name, **options) as chat:
        logs, turns = [], []
        for number in range(6):
            turns.append(await chat.say(f"{number} and so on", "fine" + "e" * number))
            logs.append(chat.log)
        offsets = set()

        for back in (4, 2, 0):
            known = [*logs]
            turn, prompt, shared = await branch(chat, f"Back to {back}", turns[back], *known)

            assert list(prompt[: len(logs[back])]) == logs[back]
            assert shared >= len(logs[back]) - 1
            assert turn.usage.claim.computed == len(prompt) - shared
            assert turn.usage.claim.reason is None
            offsets.add(shared % BLOCK_SIZE)
            logs.append([*prompt, *(0,)])
        assert offsets != {0}


@every_kind
async def test_siblings_of_one_reply_share_its_prompt(chatting, name, options):
    async with chatting(name, **options) as chat:
        await chat.say("One", "fine")
        turn = await chat.say("Two", "well")

        for reply in ("a", "bb", "ccc"):
            copies = chat.engine.runner.num_copies
            again = await chat.chat.regenerate(turn, params=chat.script(reply))

            assert again.reply_text == reply
            assert again.usage.claim.computed == 1
            assert chat.engine.runner.num_copies - copies <= 1
        assert len(await chat.chat.turns(whole_tree=True)) == 5


@every_kind
async def test_a_fork_and_its_origin_go_on_side_by_side(chatting, name, options):
    async with chatting(name, **options) as chat:
        await chat.say("One", "fine")
        log = chat.log
        fork = await chat.chat.fork()

        forked = await fork.say("Two", params=chat.script("well"))
        own = await chat.say("Three", "so")

        for turn in (forked, own):
            claim = turn.usage.claim
            assert claim.num_reused >= len(log) - 1
            assert claim.reason is None


async def test_an_edit_of_a_turn_whose_table_is_gone_says_so(chatting):
    async with chatting("chatml") as chat:
        first = await chat.say("One")
        await chat.say("Two")
        await chat.engine.evict()

        edited, prompt, _ = await branch(chat, "Other", first, chat.log)

        assert edited.usage.claim.computed == len(prompt)
        assert edited.usage.claim.reason is MissReason.EVICTED


async def test_nothing_follows_a_turn_that_runs(chatting):
    async with chatting("chatml") as chat:
        # Long enough to run still when the next one is asked for.
        first = await chat.chat.submit("One", params=chat.script("and on " * 200))

        with pytest.raises(TurnNotEndedError):
            await chat.chat.submit("Two", parent=first.id, parent_given=True)

        await chat.chat.end(first)
