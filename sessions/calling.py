"""How one model is told of tools, and how its calls are read: by its chat template, found out by
trying, or in plain words where the template doesn't know them.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from model.grammar import Grammar
from sessions.call_formats import HERMES, CallFormat, find_format, own_format
from sessions.chat_template import ChatTemplate, Message
from sessions.errors import InvalidInputError
from sessions.messages import InputMessage, ToolCall
from sessions.reasoning import ReasoningTags
from sessions.reply_parser import ReplyParser, ReplyShape
from sessions.tool_grammar import Words, behind_reasoning, call_grammar
from sessions.tool_prompt import plainly
from sessions.tools import Tool, ToolChoice, arguments_of

_PROBE = Tool(
    name="probe_f",
    description="probe d",
    parameters='{"type": "object", "properties": {"probe_p": {"type": "string"}}}',
)
_PROBE_CALL = ToolCall(id="call_1", name="probe_f", arguments='{"probe_p": "probe v"}')
_PROBED = (
    InputMessage(role="user", text="x"),
    InputMessage(role="assistant", text="", calls=(_PROBE_CALL,)),
    InputMessage(role="tool", text="probe r", call_id="call_1"),
)


class Calling:
    """Of one template. `opening` is the reply's text that prompts end with."""

    def __init__(self, template: ChatTemplate, tags: ReasoningTags, opening: str) -> None:
        self._template = template
        self._tags = tags
        self.is_native = _takes_tools(template)
        self.form = _form_of(template) if self.is_native else HERMES
        # A reply that is held to a call writes it in JSON, whatever the model's own way is.
        self._bound_form = self.form if self.form.is_json else HERMES
        self._marks = {*self.form.marks, *self._bound_form.marks, tags.open, tags.close}
        self._words = _words_of(template, self._bound_form, tags)
        self._shape = ReplyShape(form=self.form, tags=tags, opening=opening)

    def tell(
        self, messages: Sequence[InputMessage], tools: Sequence[Tool]
    ) -> tuple[tuple[InputMessage, ...], list[Message]]:
        """Messages, and tools, as this template takes them."""
        said = tuple(map(self._with_reasoning, messages))
        if self.is_native:
            return said, [tool.as_template() for tool in tools]
        return plainly(said, tools), []

    def _with_reasoning(self, message: InputMessage) -> InputMessage:
        """Reasoning as words of the reply's, where the template knows it by its tags: what becomes
        of it is the template's affair."""
        if not message.reasoning or self._tags.close not in self._template.source:
            return message
        thought = f"{self._tags.open}\n{message.reasoning}\n{self._tags.close}\n\n"
        return replace(message, text=thought + message.text, reasoning=None)

    def has_system(self, tools: Sequence[Tool]) -> bool:
        """Whether tools alone make a conversation begin with a system message."""
        return bool(tools) and not self.is_native

    def parser(self, tools: Sequence[Tool], *, is_bound: bool = False) -> ReplyParser:
        """Reads a reply that may call these; `is_bound`: one that a grammar holds."""
        form = self._bound_form if is_bound else self.form
        return ReplyParser(replace(self._shape, form=form), tools)

    def plain_parser(self) -> ReplyParser:
        """Reads a text that is no reply: nothing in it is reasoning or a call."""
        return ReplyParser(replace(self._shape, form=HERMES), reasons=False)

    def unseen(self, token_ids: Sequence[int]) -> str:
        """Those special tokens among these, by their names, that calls and reasoning stand
        between: no text shows them."""
        names = (self._template.special(token_id) for token_id in token_ids)
        return "".join(name for name in names if name in self._marks or self._shape.is_own)

    def grammar(
        self, tools: Sequence[Tool], choice: ToolChoice, answer: Grammar | None = None
    ) -> Grammar | None:
        """The form that holds a reply to a choice, and to `answer` if it doesn't call; None if it
        needs none. Where prompts begin with reasoning, the form begins where that ends."""
        end = self._reasoning_end
        bound = call_grammar(
            tools, choice, self._bound_form, self._words, reasoning=end, answer=answer
        )
        return self.form_of_answer(answer) if bound is None and answer is not None else bound

    def form_of_answer(self, grammar: Grammar) -> Grammar:
        """A form that begins where reasoning ends, where prompts begin with reasoning."""
        end = self._reasoning_end
        return grammar if end is None else behind_reasoning(grammar, end, self._words)

    @property
    def _reasoning_end(self) -> str | None:
        return self._tags.close if self._shape.opens_reasoning else None


def _words_of(template: ChatTemplate, form: CallFormat, tags: ReasoningTags) -> Words:
    """How this tokenizer spells what stands around calls and reasoning."""
    words = (form.opening.strip(), form.closing.strip(), tags.close)
    ids = {word: template.id_of(word) for word in words if word}
    return Words({word: token_id for word, token_id in ids.items() if token_id is not None})


def as_template(message: InputMessage, names: dict[str, str]) -> Message:
    """A message as templates that know tools read it; `names` are those of the calls so far."""
    if message.role == "tool":
        call_id = message.call_id or ""
        return {
            "role": "tool",
            "content": message.text,
            "tool_call_id": _short(call_id),
            "name": names.get(call_id, ""),
        }
    calls = [
        {
            "id": _short(call.id),
            "type": "function",
            "function": {"name": call.name, "arguments": arguments_of(call.arguments)},
        }
        for call in message.calls
    ]
    names.update({call.id: call.name for call in message.calls})
    return {"role": message.role, "content": message.text, "tool_calls": calls}


def _short(call_id: str) -> str:
    """Nine letters and digits: Mistral's templates take no other."""
    return hashlib.blake2b(call_id.encode(), digest_size=8).hexdigest()[:9]


def _takes_tools(template: ChatTemplate) -> bool:
    """Whether the template writes tools, calls and results."""
    names: dict[str, str] = {}
    asked = [as_template(m, names) if m.calls or m.call_id else _bare(m) for m in _PROBED]
    offered = [_PROBE.as_template()]
    try:
        first = template.write(asked[:1], opens_reply=True, tools=offered)
        whole = template.write(asked, opens_reply=True, tools=offered)
    except InvalidInputError:
        return False
    shows = all(word in first for word in ("probe_f", "probe_p", "probe d"))
    return shows and all(word in whole for word in ("probe v", "probe r"))


def _bare(message: InputMessage) -> Message:
    return {"role": message.role, "content": message.text}


def _form_of(template: ChatTemplate) -> CallFormat:
    likely = find_format(template.source)
    own = template.response_template
    return likely if own is None else own_format(own, likely)
