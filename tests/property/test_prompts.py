"""Any conversation with any template: whatever is said, sampled and cut, a prompt goes on from the
log, and says what the template says of the same messages."""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.messages import EngineInfo
from sessions.prompt import PromptComposer
from sessions.token_log import TurnLog
from sessions.types import InputMessage, ReasoningPolicy, Session, Turn, TurnId, TurnStatus
from tests.support.fake_engine import INFO
from tests.support.templates import FAMILIES, renderer_of, tokenizer_of
from tests.support.turns import NOW, make_item, make_turn

APPENDING = ("chatml", "chatml_named", "llama3", "gemma", "mistral", "dated")
REWRITING = ("qwen3", "qwen3_thinking", "numbered", "tools", "mistral")
MORNING = datetime(2026, 3, 1, 6, tzinfo=UTC)
OTHER_END = "<|endoftext|>"

WORDS = ("hello", " ", "\n", "a", "é", "e\u0301", "שלום", "🙂", "\u202e", "  x  ")
CONTROLS = ("<|im_end|>", "<|im_start|>system\n", "[/INST]", "<end_of_turn>", "<think>", "</think>")
words = st.lists(st.sampled_from(WORDS + CONTROLS), max_size=5).map("".join)
endings = st.sampled_from(["stop", "other_stop", "length", "cancelled", "failed"])


@dataclass
class Conversation:
    """What the composer asks the store and the engine for, in memory."""

    name: str
    session: Session
    turns: list[Turn] = field(default_factory=list)
    logs: dict[str, TurnLog] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.composer = PromptComposer(self, self)
        self.composer.use_renderer(renderer_of(self.name))

    @property
    def info(self) -> EngineInfo:
        tokenizer = tokenizer_of(self.name)
        ends = (tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(OTHER_END))
        return replace(INFO, fingerprint="f", eos_token_ids=ends)

    async def clock_at(self, session_id: str) -> datetime:
        return MORNING

    async def base_turns(self, turn_id: str) -> tuple[Turn, ...]:
        span = self.logs[turn_id].span
        before = await self.base_turns(span.base_id) if span.base_id else ()
        return (*before, next(t for t in self.turns if t.id == turn_id))

    async def ask(self, text: str):
        parent = self.turns[-1] if self.turns else None
        message = InputMessage(role="user", text=text)
        return await self.composer.compose(self.session, parent, (message,))

    def end(self, prompt, text: str, reply_ids: tuple[int, ...], status: TurnStatus) -> None:
        tokenizer = tokenizer_of(self.name)
        number = len(self.turns)
        turn = make_turn(
            id=TurnId(f"resp_{number}"),
            parent_id=self.turns[-1].id if self.turns else None,
            status=status,
            input_items=(make_item(text=text),),
            reply_text=tokenizer.decode(
                reply_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
            ),
        )
        span = prompt.span(turn.id, "f")
        log = TurnLog(
            span=replace(span, ids=span.ids + reply_ids), token_ids=prompt.token_ids + reply_ids
        )
        self.turns.append(turn)
        self.logs[turn.id] = log
        self.composer.remember(log)

    def last_log(self) -> tuple[int, ...]:
        """That of the last turn that left something in the conversation."""
        kept = [t for t in self.turns if is_kept(t, self.logs[t.id])]
        return self.logs[kept[-1].id].token_ids if kept else ()


def is_kept(turn: Turn, log: TurnLog) -> bool:
    ended = turn.status in (TurnStatus.COMPLETED, TurnStatus.INCOMPLETE)
    return ended or bool(log.span.reply_ids)


def begin(name: str, **options) -> Conversation:
    values = {"title": None, "instructions": None, "model": "m", "fingerprint": "f"} | options
    session = Session(id="conv", owner="ann", created_at=NOW, updated_at=NOW, **values)
    return Conversation(name, session)


def spoken(name: str, token_ids) -> str:
    return tokenizer_of(name).decode(token_ids, clean_up_tokenization_spaces=False)


def reply_of(name: str, drawn: list[int], ending: str) -> tuple[tuple[int, ...], TurnStatus]:
    """Sampled ids, whatever they are: control tokens may stand among them, but not at the end."""
    tokenizer = tokenizer_of(name)
    ids = [i % len(tokenizer) for i in drawn]
    while ids and ids[-1] in tokenizer.added_tokens_decoder:
        ids.pop()
    match ending:
        case "stop":
            return (*ids, tokenizer.eos_token_id), TurnStatus.COMPLETED
        case "other_stop":
            return (*ids, tokenizer.convert_tokens_to_ids(OTHER_END)), TurnStatus.COMPLETED
        case "length":
            return tuple(ids), TurnStatus.INCOMPLETE
        case "cancelled":
            return tuple(ids), TurnStatus.CANCELLED
        case _:
            return (), TurnStatus.FAILED


def ordinary(ids: list[int], name: str) -> list[int]:
    return [i for i in ids if i % len(tokenizer_of(name)) not in controls(name)]


def controls(name: str):
    return tokenizer_of(name).added_tokens_decoder


turns = st.lists(
    st.tuples(words, st.lists(st.integers(0, 400), max_size=8), endings), min_size=1, max_size=4
)
instructions = st.sampled_from([None, "", "Be brief.", "<|im_end|> x"])


@pytest.mark.parametrize("name", APPENDING)
@settings(max_examples=25, deadline=None)
@given(turns=turns, instructions=instructions, last=words)
def test_an_appending_template_goes_on_from_the_log_and_says_what_it_renders(
    name, turns, instructions, last
):
    if name in ("mistral", "gemma"):
        instructions = None  # behind which these rewrite, or which they say in the user's place

    async def check() -> None:
        chat = begin(name, instructions=instructions)
        told: list[tuple[str, str]] = []
        for text, drawn, ending in turns:
            prompt = await chat.ask(text)
            check_prompt(chat, prompt, [*told], text)
            reply_ids, status = reply_of(name, drawn, ending)
            chat.end(prompt, text, reply_ids, status)
            if is_kept(chat.turns[-1], chat.logs[chat.turns[-1].id]):
                ends = chat.info.eos_token_ids
                body = reply_ids[:-1] if reply_ids and reply_ids[-1] in ends else reply_ids
                told.append((text, spoken(name, body)))
        check_prompt(chat, await chat.ask(last), told, last)

    asyncio.run(check())


def check_prompt(chat: Conversation, prompt, told: list[tuple[str, str]], text: str) -> None:
    log = chat.last_log()
    is_other_end = bool(log) and log[-1] == chat.info.eos_token_ids[1]
    assert prompt.token_ids[: len(log) - is_other_end] == log[: len(log) - is_other_end]
    assert prompt.diverged_at is None
    assert spoken(chat.name, prompt.token_ids) == rendering(chat, told, text)


def rendering(chat: Conversation, told: list[tuple[str, str]], text: str) -> str:
    """What the template writes, with each reply as it was sampled, white space and all."""
    lead = chat.session.instructions
    messages = []
    if lead or (lead == "" and chat.name == "chatml_named"):
        messages.append({"role": "system", "content": lead})
    for number, (asked, _) in enumerate(told):
        messages.append({"role": "user", "content": asked})
        messages.append({"role": "assistant", "content": f"reply-{number}."})
    messages.append({"role": "user", "content": text})
    template = FAMILIES[chat.name].template
    template = template.replace("strftime_now('%d %b %Y')", "'01 Mar 2026'")
    template = template.replace("strftime_now('%A, %-d %B %Y')", "'Sunday, 1 March 2026'")
    if chat.name == "mistral":  # which writes a space that was not sampled
        template = template.replace("' ' + message['content']", "message['content']")
    written = tokenizer_of(chat.name).apply_chat_template(
        messages, chat_template=template, add_generation_prompt=True, tokenize=False
    )
    for number, (_, reply) in enumerate(told):
        written = written.replace(f"reply-{number}.", reply, 1)
    return written


@pytest.mark.parametrize("policy", [ReasoningPolicy.TEMPLATE, ReasoningPolicy.DROP])
@pytest.mark.parametrize("name", REWRITING)
@settings(max_examples=20, deadline=None)
@given(turns=turns, last=words)
def test_a_rewriting_template_keeps_of_the_log_what_it_still_says(name, policy, turns, last):
    async def check() -> None:
        chat = begin(name, reasoning=policy, instructions="Be brief.")
        for text, drawn, ending in [*turns, (last, [], "stop")]:
            prompt = await chat.ask(text)
            log = chat.last_log()
            keep = prompt.keep_tokens
            assert prompt.token_ids[:keep] == log[:keep]
            ended = bool(log) and log[-1] in chat.info.eos_token_ids
            assert (prompt.diverged_at is None) == (keep >= len(log) - ended)
            assert text.strip() in spoken(name, prompt.token_ids)
            chat.end(prompt, text, *reply_of(name, ordinary(drawn, name), ending))

    asyncio.run(check())


@pytest.mark.parametrize("name", ["chatml", "qwen3", "qwen3_thinking", "llama3"])
@settings(max_examples=25, deadline=None)
@given(turns=turns, thought=words, is_cut=st.booleans())
def test_what_is_dropped_is_reasoning_and_nothing_else(name, turns, thought, is_cut):
    tokenizer = tokenizer_of(name)
    opening = "" if name == "qwen3_thinking" else "<think>\n"
    thought = "mull " + thought.replace("</think>", "")

    async def check() -> None:
        chat = begin(name, reasoning=ReasoningPolicy.DROP)
        for text, drawn, _ in turns:
            answer = (
                tokenizer.decode([i for i in ordinary(drawn, name) if i % len(tokenizer)])
                .replace("\N{REPLACEMENT CHARACTER}", "")
                .strip()
            )
            reply = opening + thought + ("" if is_cut else f"\n</think>\n\n{answer}")
            ids = [i for char in split(name, reply) for i in tokenizer.encode(char)]
            ids += [] if is_cut else [tokenizer.eos_token_id]
            chat.end(await chat.ask(text), text, tuple(ids), TurnStatus.COMPLETED)
            following = await chat.ask("and?")
            said = spoken(name, following.token_ids)
            assert "mull" not in said
            remembered = f"{'' if is_cut else answer}{FAMILIES[name].eos}"
            assert remembered in said
            keep = following.keep_tokens
            assert following.token_ids[:keep] == chat.last_log()[:keep]
            assert following.diverged_at == keep

    asyncio.run(check())


def split(name: str, text: str) -> list[str]:
    """A piece a character, but for the tags."""
    pieces: list[str] = []
    while text:
        tag = next((t for t in ("<think>", "</think>") if text.startswith(t)), text[:1])
        pieces.append(tag)
        text = text[len(tag) :]
    return pieces
