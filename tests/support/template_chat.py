"""A conversation of one template's family over the real engine core, with what must be computed
told independently: from the template's text and nothing of Splice's."""

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from model.config import SamplingParams
from sessions.manager import SessionManager
from sessions.types import Turn
from tests.support.chat import Chat
from tests.support.core_engine import CoreEngine
from tests.support.templates import FAMILIES, tokenizer_of

# What a template is told of the day on which `FakeClock` starts, by what it asks.
_FIRST_DAY = {
    "strftime_now('%d %b %Y')": "01 Mar 2026",
    "strftime_now('%A, %-d %B %Y')": "Sunday, 1 March 2026",
}


def split_finely(name: str, text: str) -> list[int]:
    """Ids of a reply as a model might sample them: a token a character, but for those tokens of
    the template's that stand for a word of their own. Nobody would encode the text like this."""
    tokenizer = tokenizer_of(name)
    visible = [t.content for t in tokenizer.added_tokens_decoder.values() if not t.special]
    ids: list[int] = []
    while text:
        whole = next((word for word in visible if text.startswith(word)), text[:1])
        ids += tokenizer.encode(whole, add_special_tokens=False)
        text = text[len(whole) :]
    return ids


@dataclass
class TemplateChat:
    """Says things and knows what the template makes of them."""

    name: str
    chat: Chat
    engine: CoreEngine
    messages: list[dict[str, str]] = field(default_factory=list)
    log: list[int] = field(default_factory=list)
    seeds: Any = field(default_factory=lambda: count(1))

    @classmethod
    async def open(
        cls, name: str, manager: SessionManager, engine: CoreEngine, **options: Any
    ) -> "TemplateChat":
        made = cls(name, await Chat.open(manager, **options), engine)
        if options.get("instructions"):
            made.messages.append({"role": "system", "content": options["instructions"]})
        return made

    @property
    def prompt(self) -> tuple[int, ...]:
        """The ids that the last turn was asked with."""
        turns = [r for r in self.engine.requests if r.request_id.startswith("resp_")]
        return turns[-1].token_ids

    async def say(self, text: str, reply: str = "fine", *, is_cut: bool = False) -> Turn:
        """A turn with a reply that is sampled a character at a time."""
        params = self.script(reply, is_cut=is_cut)
        turn = await self.chat.say(text, params=params)
        assert turn.reply_text == reply
        prompt = next(r.token_ids for r in self.engine.requests if r.request_id == turn.id)
        self.log = [*prompt, *self.engine.runner.replies[params.seed]]
        self.messages += [
            {"role": "user", "content": text},
            {"role": "assistant", "content": reply},
        ]
        return turn

    def script(self, reply: str, *, is_cut: bool = False) -> SamplingParams:
        """Parameters with which a reply comes out."""
        ids = split_finely(self.name, reply)
        if not is_cut:
            ids.append(tokenizer_of(self.name).eos_token_id)
        seed = next(self.seeds)
        self.engine.runner.replies[seed] = ids
        max_tokens = len(ids) if is_cut else None
        return SamplingParams(seed=seed, temperature=0.0, max_output_tokens=max_tokens)

    def written(self, *new: str) -> str:
        """What the template writes of all messages so far and what the user says next."""
        asked = [{"role": "user", "content": text} for text in new]
        template = FAMILIES[self.name].template
        for call, day in _FIRST_DAY.items():
            template = template.replace(call, f"'{day}'")
        return tokenizer_of(self.name).apply_chat_template(
            [*self.messages, *asked],
            chat_template=template,
            add_generation_prompt=True,
            tokenize=False,
        )

    def spoken(self, token_ids: list[int] | tuple[int, ...]) -> str:
        """The text of ids, control tokens included."""
        return tokenizer_of(self.name).decode(token_ids, clean_up_tokenization_spaces=False)

    def agreement(self, written: str) -> int:
        """How many tokens of the log spell the beginning of a text."""
        tokenizer = tokenizer_of(self.name)
        ids = tokenizer.encode(written, add_special_tokens=False)
        spelled = "".join(tokenizer.convert_ids_to_tokens(ids))
        num_chars = 0
        for number, piece in enumerate(tokenizer.convert_ids_to_tokens(self.log)):
            if not spelled.startswith(piece, num_chars):
                return number
            num_chars += len(piece)
        return len(self.log)
