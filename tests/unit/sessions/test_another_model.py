"""A conversation that meets another model: written down by one, gone on with by the next.

The next one's tokenizer numbers the same words the other way round, so that a token of the first
that reached it would be another word.
"""

import json
from contextlib import asynccontextmanager

import pytest
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from model.config import SamplingParams
from model.messages import MissReason
from sessions.chat_template import ChatTemplate
from sessions.manager import ManagerConfig, SessionManager
from sessions.rendering import Renderer
from sessions.transfer import ImportedSession, ImportedTurn
from sessions.types import InputMessage, ReasoningPolicy, TurnStatus
from tests.support import tiny_tokenizer as tiny
from tests.support.chat import ANN, Chat
from tests.support.core_engine import CoreEngine
from tests.support.postgres import DATABASES


@pytest.fixture(params=DATABASES)
def database_kind(request):
    return request.param


FIRST = tiny.make_tokenizer(tiny.CHATML)


def renumbered() -> PreTrainedTokenizerFast:
    state = json.loads(FIRST.backend_tokenizer.to_str())
    vocab = state["model"]["vocab"]
    last = len(vocab) - 1
    state["model"]["vocab"] = {word: last - number for word, number in vocab.items()}
    for token in state["added_tokens"]:
        token["id"] = last - token["id"]
    fast = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(state)), eos_token="<|im_end|>"
    )
    fast.chat_template = tiny.TRIMMING
    return fast


SECOND = renumbered()
tokenizer_of = {"one": FIRST, "two": SECOND}


@pytest.fixture
def serving(store, clock):
    """A server of one of the models, over the one store."""

    @asynccontextmanager
    async def start(tokenizer: PreTrainedTokenizerFast, fingerprint: str):
        engine = CoreEngine(tokenizer, fingerprint=fingerprint)
        async with SessionManager(
            store=store, engine=engine, clock=clock, config=ManagerConfig(runner_id="runner-1")
        ) as manager:
            manager.use_renderer(Renderer(ChatTemplate(tokenizer)))
            yield manager, engine

    return start


async def say(chat: Chat, engine: CoreEngine, tokenizer, text: str, reply: str, *, max_tokens=None):
    ids = tokenizer.encode(reply, add_special_tokens=False)
    seed = len(engine.requests) + 1
    engine.runner.replies[seed] = [*ids, tokenizer.eos_token_id]
    params = SamplingParams(seed=seed, temperature=0.0, max_output_tokens=max_tokens)
    return await chat.say(text, params=params)


async def test_the_next_turn_is_rendered_and_encoded_anew_and_says_why(serving, store):
    async with serving(FIRST, "one") as (manager, engine):
        chat = await Chat.open(manager, instructions="Be brief.")
        await say(chat, engine, FIRST, "hello", "hello world")
        before = engine.requests[-1].token_ids
    async with serving(SECOND, "two") as (manager, engine):
        chat = Chat(manager, await manager.get(ANN, chat.id))
        assert chat.session.fingerprint == "one"

        turn = await say(chat, engine, SECOND, "how are you?", "I am fine")

        asked = engine.requests[-1].token_ids
        assert SECOND.decode(asked) == (
            "<|im_start|>system\nBe brief.<|im_end|>\n"
            "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\nhello world<|im_end|>\n"
            "<|im_start|>user\nhow are you?<|im_end|>\n<|im_start|>assistant\n"
        )
        assert asked[: len(before)] != before
        assert (turn.status, turn.reply_text) == (TurnStatus.COMPLETED, "I am fine")
        assert turn.usage.claim.reason is MissReason.FINGERPRINT_CHANGED
        assert turn.usage.claim.computed == len(asked)
        span = (await store.spans(turn.id))[-1]
        assert (span.keep_tokens, span.fingerprint) == (0, "two")
        assert (await manager.get(ANN, chat.id)).fingerprint == "two"

        after = await say(chat, engine, SECOND, "hello", "fine")
        assert after.usage.claim.reason is None
        assert after.usage.claim.num_reused > len(asked)


async def test_a_cut_reply_of_the_old_models_goes_on_with_its_words_encoded_anew(serving, store):
    async with serving(FIRST, "one") as (manager, engine):
        chat = await Chat.open(manager)
        await say(chat, engine, FIRST, "hello", "hello world")
        cut = await say(chat, engine, FIRST, "how are you?", "I am", max_tokens=2)
        assert cut.status is TurnStatus.INCOMPLETE
    async with serving(SECOND, "two") as (manager, engine):
        turn = await goes_on(Chat(manager, chat.session), engine, cut, "I am fine today")

        asked = engine.requests[-1]
        assert SECOND.decode(asked.token_ids).endswith(
            "hello world<|im_end|>\n<|im_start|>user\nhow are you?<|im_end|>\n"
            "<|im_start|>assistant\n"
        )
        assert SECOND.decode(asked.resumed_ids) == cut.reply_text
        assert (turn.status, turn.reply_text) == (TurnStatus.COMPLETED, "I am fine today")
        assert turn.usage.claim.reason is MissReason.FINGERPRINT_CHANGED
        span = (await store.spans(turn.id))[-1]
        assert SECOND.decode(span.reply_ids) == "I am fine today<|im_end|>"


async def test_an_imported_reply_goes_on(serving, clock):
    imported = ImportedSession(
        title=None,
        instructions=None,
        reasoning=ReasoningPolicy.TEMPLATE,
        metadata={},
        sampling={},
        is_pinned=False,
        is_auto_titled=True,
        head="1",
        turns=(
            ImportedTurn(
                key="1",
                parent=None,
                status=TurnStatus.INCOMPLETE,
                params=SamplingParams(temperature=0.0, seed=1),
                input=(InputMessage(role="user", text="how are you?"),),
                reply_text="I am",
                incomplete_reason="max_output_tokens",
                error=None,
                created_at=clock(),
                finished_at=clock(),
            ),
        ),
    )
    async with serving(FIRST, "one") as (manager, engine):
        session = await manager.importer.bring_in(ANN, imported)
        chat = Chat(manager, session)
        (cut,) = await chat.turns()

        turn = await goes_on(chat, engine, cut, "I am fine")
        after = await say(chat, engine, FIRST, "hello", "hello")

    assert (turn.status, turn.reply_text) == (TurnStatus.COMPLETED, "I am fine")
    assert turn.usage.claim.reason is MissReason.FINGERPRINT_CHANGED
    assert after.usage.claim.reason is None


async def goes_on(chat: Chat, engine: CoreEngine, cut, whole: str):
    """Continue a cut reply, such that all of it is `whole`."""
    tokenizer = tokenizer_of[engine.info.fingerprint]
    head = tokenizer.encode(cut.reply_text, add_special_tokens=False)
    rest = tokenizer.encode(whole.removeprefix(cut.reply_text), add_special_tokens=False)
    engine.runner.replies[cut.params.seed] = [*head, *rest, tokenizer.eos_token_id]
    return await chat.end(await chat.manager.go_on(ANN, cut.id, max_more_tokens=50))


async def test_a_branch_of_the_old_models_is_marked_as_such_when_the_head_goes_back(serving):
    async with serving(FIRST, "one") as (manager, engine):
        chat = await Chat.open(manager)
        first = await say(chat, engine, FIRST, "hello", "hello")
    async with serving(SECOND, "two") as (manager, engine):
        chat = Chat(manager, chat.session)
        second = await say(chat, engine, SECOND, "hello", "fine")

        back = await manager.move_head(ANN, chat.id, first.id)
        fork = await chat.fork(first.id)
        forth = await manager.move_head(ANN, chat.id, second.id)

        assert [s.fingerprint for s in (back, fork.session, forth)] == ["one", "one", "two"]
