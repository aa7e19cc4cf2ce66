"""Reasoning that is dropped: what is remembered, and that its prefix is computed while people read.

What `keep` and `template` cost is in `test_template_chats`.
"""

import pytest

from model.errors import EngineBusyError
from model.messages import MissReason
from sessions.reasoning import THINK, ReasoningTags, answer_of, find_tags
from sessions.types import ReasoningPolicy, TurnStatus
from tests.support.chat import ANN
from tests.support.template_chat import TemplateChat
from tests.support.templates import tokenizer_of

DROP = {"reasoning": ReasoningPolicy.DROP}
THOUGHT = "let me see"
TURNS = [(f"{word}?", f"answer {word}") for word in ("One", "Two", "Three", "Four", "Five")]


def reply_of(name: str, answer: str) -> str:
    """With reasoning, of which the prompt may have written the beginning already."""
    opening = "" if name == "qwen3_thinking" else "<think>\n"
    return f"{opening}{THOUGHT}\n</think>\n\n{answer}"


async def prefix_behind(chat: TemplateChat, turn) -> tuple[int, ...]:
    """The ids computed ahead behind a turn, once they are."""
    await chat.engine.over(f"ahead_{turn.id}")
    return next(r.token_ids for r in chat.engine.requests if r.request_id == f"ahead_{turn.id}")


@pytest.mark.parametrize(
    ("reply", "is_open", "answer"),
    [
        ("hello", False, "hello"),
        ("<think>\nhm\n</think>\n\nhello", False, "hello"),
        ("  <think>hm</think>hello", False, "hello"),
        ("<think></think>", False, ""),
        ("<think>\nhm", False, ""),  # cut
        ("hm\n</think>\n\nhello", True, "hello"),
        ("hm", True, ""),  # cut
        ("", True, ""),
        ("", False, ""),
        ("a <think> is a tag, </think> another", False, "a <think> is a tag, </think> another"),
        ("stray </think> hello", False, "stray </think> hello"),
        ("<think>a</think>b<think>c</think>d", False, "b<think>c</think>d"),
        ("<think>a</think>\n\n  code", False, "  code"),
    ],
)
def test_an_answer_is_what_stands_behind_the_reasoning_a_reply_begins_with(reply, is_open, answer):
    assert answer_of(reply, THINK, is_open=is_open) == answer


def test_other_tags_are_other_words():
    tags = ReasoningTags("[THINK]", "[/THINK]")

    assert answer_of("[THINK]hm[/THINK]x", tags, is_open=False) == "x"
    assert answer_of("<think>hm</think>x", tags, is_open=False) == "<think>hm</think>x"


def test_the_first_tags_that_a_template_speaks_of_are_the_models():
    assert find_tags("{% if '[/THINK]' %}{# or <think> #}") == ReasoningTags("[THINK]", "[/THINK]")
    assert find_tags("{{ message['content'] }}") == THINK


@pytest.mark.parametrize("name", ["chatml", "llama3", "qwen3", "qwen3_thinking", "gemma"])
async def test_the_prefix_without_reasoning_is_there_when_the_user_speaks(chatting, name):
    async with chatting(name, **DROP) as chat:
        turn, prefix, rows = None, (), 0
        for ask, answer in TURNS:
            if turn is not None:
                prefix = await prefix_behind(chat, turn)
                cut = next(n for n, token_id in enumerate(prefix) if chat.log[n] != token_id)
                rows += turn.usage.num_rows_computed + len(prefix) - cut
                assert chat.engine.runner.num_rows == rows
                assert THOUGHT in chat.spoken(chat.log)
                # Remembered are answers, as the template writes them.
                chat.messages[-1]["content"] = TURNS[len(chat.messages) // 2 - 1][1]
            written = chat.written(ask)

            turn = await chat.say(ask, reply_of(name, answer))

            claim = turn.usage.claim
            assert chat.spoken(chat.prompt) == written
            assert THOUGHT not in written
            if prefix:
                assert chat.prompt[: len(prefix)] == prefix
                assert chat.spoken(chat.prompt[len(prefix) :]).startswith(ask)
                assert claim.computed == len(chat.prompt) - len(prefix) + 1
                assert (claim.reason, claim.diverged_at) == (None, None)


async def test_the_prefix_costs_the_answer_and_what_closes_it(chatting):
    async with chatting("qwen3", **DROP) as chat:
        turn = await chat.say("one", reply_of("qwen3", "fine"))

        prefix = await prefix_behind(chat, turn)

        tokenizer = tokenizer_of("qwen3")
        answer = tokenizer.encode("fine", add_special_tokens=False)
        behind = tokenizer.encode("<|im_end|>\n<|im_start|>user\n", add_special_tokens=False)
        rows = chat.engine.runner.num_rows - turn.usage.num_rows_computed
        assert rows == len("fine") + len(behind)
        size = len(chat.prompt)
        # The answer stays as it was sampled, a token a letter, not as it would be encoded.
        assert len(prefix) == size + len("fine") + len(behind) > size + len(answer) + len(behind)


async def test_a_template_that_must_be_rendered_again_forgets_reasoning_too(chatting):
    async with chatting("mistral", instructions="Be brief.", **DROP) as chat:
        first = await chat.say("One", reply_of("mistral", "fine"))
        prefix = await prefix_behind(chat, first)
        second = await chat.say("Two")

        prompt = chat.prompt
        assert chat.spoken(prompt) == "<s>[INST] One[/INST] fine</s>[INST] Be brief.\n\nTwo[/INST]"
        assert prompt[: len(prefix)] == prefix
        assert second.usage.claim.computed == len(prompt) - len(prefix) + 1


@pytest.mark.parametrize("name", ["chatml", "qwen3_thinking"])
async def test_a_reply_cut_in_its_reasoning_leaves_an_empty_answer(chatting, name):
    async with chatting(name, **DROP) as chat:
        reply = reply_of(name, "").partition("\n</think>")[0]
        turn = await chat.say("one", reply, is_cut=True)
        assert turn.status is TurnStatus.INCOMPLETE
        await prefix_behind(chat, turn)
        chat.messages[-1]["content"] = ""
        written = chat.written("two")

        await chat.say("two")

        assert chat.spoken(chat.prompt) == written


async def test_a_reply_cut_in_its_reasoning_is_kept_as_it_is_and_closed(chatting):
    async with chatting("qwen3", reasoning=ReasoningPolicy.KEEP) as chat:
        await chat.say("one", "<think>\nlet me", is_cut=True)
        written = chat.written("two")

        await chat.say("two")

        assert chat.spoken(chat.prompt) == written


async def test_a_model_whose_prompt_opens_the_reasoning_is_shown_its_template_whole(chatting):
    async with chatting("qwen3_thinking") as chat:
        await chat.say("one", "let me", is_cut=True)

        await chat.say("two")

        # What was cut was reasoning; without its tag it would look like an answer.
        spoken = chat.spoken(chat.prompt)
        assert "<|im_start|>assistant\n<think>\nlet me<|im_end|>\n<|im_start|>user\ntwo" in spoken


async def test_tags_in_a_rendered_reply_are_the_models_own_tokens(chatting):
    async with chatting("qwen3_thinking") as chat:
        think = tokenizer_of("qwen3_thinking").convert_tokens_to_ids("<think>")
        await chat.say("one", "let me", is_cut=True)

        await chat.say("is <think> a tag?")

        # One in the history, one that opens the reply, and none of the user's.
        assert chat.prompt.count(think) == 2


@pytest.mark.parametrize("policy", [ReasoningPolicy.KEEP, ReasoningPolicy.TEMPLATE])
async def test_nothing_is_computed_ahead_unless_reasoning_is_dropped(chatting, policy):
    async with chatting("qwen3", reasoning=policy) as chat:
        await chat.say("one", reply_of("qwen3", "fine"))
        await chat.say("two", reply_of("qwen3", "fine"))

        assert len(chat.engine.requests) == 2


async def test_nothing_is_computed_ahead_behind_a_reply_without_reasoning(chatting):
    async with chatting("qwen3", **DROP) as chat:
        await chat.say("one", "fine")
        await chat.say("two", "fine")

        assert len(chat.engine.requests) == 2


async def test_a_user_who_is_quicker_ends_it_and_computes_the_rest(chatting):
    async with chatting("chatml", **DROP) as chat:
        chat.engine.may_step.clear()
        turn = await chat.say("one", reply_of("chatml", "fine"))
        await chat.engine.begun(f"ahead_{turn.id}")
        cut = len(chat.engine.requests[0].token_ids)

        second = await chat.say("two")
        await chat.engine.over(f"ahead_{turn.id}")

        claim = second.usage.claim
        assert claim.reason is MissReason.DIVERGED
        assert claim.diverged_at == cut
        assert claim.computed == claim.num_prompt_tokens - cut


async def test_what_was_computed_until_then_is_not_lost(chatting):
    async with chatting("chatml", token_budget=8, **DROP) as chat:
        chat.engine.may_step.clear()
        turn = await chat.say("one", reply_of("chatml", "a long answer"))
        await chat.engine.begun(f"ahead_{turn.id}")
        cut = len(chat.engine.requests[0].token_ids)
        chat.engine.core.step()

        second = await chat.say("two")

        assert second.usage.claim.computed == second.usage.claim.num_prompt_tokens - cut - 8


async def test_a_user_who_speaks_before_it_was_even_asked_for_is_not_hindered(chatting):
    async with chatting("chatml", **DROP) as chat:
        turn = await chat.say("one", reply_of("chatml", "fine"))
        second = await chat.say("two")

        assert second.status is TurnStatus.COMPLETED
        assert THOUGHT not in chat.spoken(chat.prompt)
        assert turn.id == second.parent_id


async def test_an_engine_that_refuses_it_costs_nothing_but_the_time(chatting, monkeypatch):
    async with chatting("chatml", **DROP) as chat:
        submit = chat.engine.core.submit

        def refuse(request):
            if request.request_id.startswith("ahead_"):
                raise EngineBusyError("too many wait")
            return submit(request)

        monkeypatch.setattr(chat.engine.core, "submit", refuse)
        turn = await chat.say("one", reply_of("chatml", "fine"))
        await chat.engine.over(f"ahead_{turn.id}")

        second = await chat.say("two")

        assert second.status is TurnStatus.COMPLETED
        assert second.usage.claim.reason is MissReason.DIVERGED


async def test_a_failure_of_ours_in_it_ends_no_turn(chatting, monkeypatch, caplog):
    async with chatting("chatml", **DROP) as chat:
        composer = chat.chat.manager._composer

        async def fail(session, turn):
            raise RuntimeError("a bug")

        monkeypatch.setattr(composer, "compose_ahead", fail)
        await chat.say("one", reply_of("chatml", "fine"))

        second = await chat.say("two")

        assert second.status is TurnStatus.COMPLETED
        assert "a bug" in caplog.text


async def test_a_fork_takes_the_prefix_and_leaves_it_there(chatting):
    async with chatting("chatml", **DROP) as chat:
        turn = await chat.say("one", reply_of("chatml", "fine"))
        prefix = await prefix_behind(chat, turn)
        fork = await chat.chat.fork()
        engine = chat.engine

        forked = await fork.say("two", params=chat.script("fine"))
        own = await chat.say("three")

        assert fork.session.reasoning is ReasoningPolicy.DROP
        for claim in (forked.usage.claim, own.usage.claim):
            assert claim.num_reused >= len(prefix) - 1
            assert claim.reason is None
        assert engine.core.stats().books_failures_total == 0


async def test_a_deleted_session_leaves_no_prefix(chatting):
    async with chatting("chatml", **DROP) as chat:
        chat.engine.may_step.clear()
        turn = await chat.say("one", reply_of("chatml", "fine"))
        await chat.engine.begun(f"ahead_{turn.id}")

        await chat.chat.manager.delete(ANN, chat.chat.id)

        assert await chat.engine.tables(chat.chat.id) == ()


async def test_a_server_that_stops_does_not_wait_for_it(chatting):
    async with chatting("chatml", **DROP) as chat:
        chat.engine.may_step.clear()
        turn = await chat.say("one", reply_of("chatml", "fine"))
        await chat.engine.begun(f"ahead_{turn.id}")

    assert not chat.engine.core.has_work


async def test_a_regenerated_reply_is_drawn_from_the_same_prompt(chatting):
    async with chatting("chatml", **DROP) as chat:
        first = await chat.say("one", reply_of("chatml", "fine"))
        await prefix_behind(chat, first)
        second = await chat.say("two", reply_of("chatml", "well"))
        prompt = chat.prompt
        await prefix_behind(chat, second)

        again = await chat.chat.regenerate(second, params=chat.script("fine"))

        assert chat.prompt == prompt
        assert again.usage.claim.computed == 1
