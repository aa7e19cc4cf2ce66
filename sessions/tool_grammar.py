"""Grammars that hold a reply to the tools it may call, in Lark as llguidance has it. Pure.

What stands around a call is the model's own habit; between it, JSON by the tool's schema. A reply
that need not call is free until it opens a call.
"""

import json
import re
from collections.abc import Mapping, Sequence

from model.grammar import Grammar, GrammarKind
from sessions.call_formats import CallFormat
from sessions.tools import MAX_CALLS, Tool, ToolChoice, ToolMode

# A choice only picks among tools: what can't be compiled is a tool's schema, whoever demands it.
PARAM = "tools"
_ANY_TEXT = r"/(.|\n)*/"
# As for a form that stands alone (`model.matcher`): what its schema bounds stays bounded, and a
# small model can't lose itself in blanks.
_JSON_OPTIONS = {"whitespace_pattern": r"\n?[ ]{0,16}", "coerce_one_of": True}


def call_grammar(
    tools: Sequence[Tool],
    choice: ToolChoice,
    form: CallFormat,
    words: "Words",
    *,
    reasoning: str | None = None,
    answer: Grammar | None = None,
) -> Grammar | None:
    """A form for the reply; None where it is free, or nothing tells a call in it from text.

    Calls are written as `form` says, which must be one in JSON; `reasoning` is what ends the
    reasoning that the reply begins in; `answer` is the form of a reply that need not call, and
    does not.
    """
    offered = choice.of(tools)
    body = None if answer is None or choice.mode is ToolMode.REQUIRED else _body(answer)
    is_free = choice.mode is ToolMode.AUTO and body is None
    if not offered or (is_free and not _is_bound(tools, choice)):
        return None
    many = MAX_CALLS if choice.is_parallel else 1
    if choice.mode is ToolMode.REQUIRED:
        rules = _required(form, words, many)
    elif body is not None:
        calls = _required(form, words, many)
        rules = ["body: answer | calls", f"answer: {body}", "calls" + calls[0][4:], *calls[1:]]
    elif form.is_bare or form.is_list:
        return None
    else:
        rules = _free(form, words, many)
    head = "" if reasoning is None else "head "
    lines = ["%llguidance {}", f"start: {head}body", *rules, *_calls(offered, form)]
    if reasoning is not None:
        lines += words.head(reasoning)
    # Whichever of the two is more likely to be what can't be compiled.
    param = PARAM if answer is None or body is None else answer.param
    return Grammar(kind=GrammarKind.LARK, text="\n".join(lines) + "\n", param=param)


def behind_reasoning(grammar: Grammar, end: str, words: "Words") -> Grammar:
    """The same form, behind reasoning that ends with these words.

    One in Lark is taken as it is: its author says where reasoning goes.
    """
    body = _body(grammar)
    if body is None:
        return grammar
    lines = ["%llguidance {}", "start: head body", *words.head(end), f"body: {body}"]
    return Grammar(kind=GrammarKind.LARK, text="\n".join(lines) + "\n", param=grammar.param)


def _body(grammar: Grammar) -> str | None:
    """A form within another; None for one in Lark, whose rules have names of their own."""
    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            return _json(json.loads(grammar.text))
        case GrammarKind.JSON_OBJECT:
            return _json({"type": "object"})
        case GrammarKind.REGEX:
            return _regex(grammar.text)
    return None


def _regex(pattern: str) -> str:
    """A pattern as a terminal, which ends at the first slash that nothing escapes."""
    return "/" + re.sub(r"\\.|/|\n", _escaped, pattern, flags=re.DOTALL) + "/"


def _escaped(match: re.Match[str]) -> str:
    return {"/": r"\/", "\n": r"\n", "\\\n": r"\n"}.get(match[0], match[0])


def _json(schema: object) -> str:
    """What is written by a schema, within another grammar."""
    held = {**schema, "x-guidance": _JSON_OPTIONS} if isinstance(schema, dict) else schema
    return f"%json {json.dumps(held)}"


class Words:
    """Writes words into grammars: those that are tokens of their own by their ids, for no other
    spelling is what the model learnt. `tokens` are all that may be among the words."""

    def __init__(self, tokens: Mapping[str, int]) -> None:
        self._tokens = tokens
        longest_first = sorted(map(re.escape, tokens), key=len, reverse=True)
        self._split = re.compile(f"({'|'.join(longest_first)})") if tokens else None

    def literal(self, text: str) -> str:
        """Exactly these words; nothing for none."""
        pieces = self._split.split(text) if self._split is not None else [text]
        return " ".join(
            f"<[{self._tokens[piece]}]>" if piece in self._tokens else json.dumps(piece)
            for piece in pieces
            if piece
        )

    def until(self, name: str, end: str) -> str:
        """A rule: any text, up to the first of these words, and them."""
        if end in self._tokens:
            return f"{name}: {_ANY_TEXT} {self.literal(end)}"
        return f"{name}[lazy]: {_ANY_TEXT} {json.dumps(end)}"

    def head(self, end: str) -> list[str]:
        """Rules: reasoning, and a few blanks."""
        return ["head: think /\\s{0,4}/", self.until("think", end)]


def _is_bound(tools: Sequence[Tool], choice: ToolChoice) -> bool:
    """Whether a reply that may call must be watched when it does."""
    offered = choice.of(tools)
    return not choice.is_parallel or len(offered) < len(tools) or any(t.strict for t in offered)


def _required(form: CallFormat, words: Words, many: int) -> list[str]:
    """At least one call, and nothing else."""
    opening, closing = words.literal(form.opening), words.literal(form.closing)
    more = f" (sep call){{0,{many - 1}}}" if many > 1 else ""
    if form.is_list:
        return [f'body: {opening} "[" call{more} "]"', 'sep: ", "', "call: tool"]
    return [f"body: call{more}", r'sep: "\n"', f"call: {opening} tool {closing}"]


def _free(form: CallFormat, words: Words, many: int) -> list[str]:
    """Text, and calls behind it."""
    opening, closing = words.literal(form.opening), words.literal(form.closing)
    marker = form.opening.strip()
    rest = words.literal(form.opening[len(marker) :])
    more = rf' ("\n" {opening} tool {closing}){{0,{many - 1}}}' if many > 1 else ""
    return [
        f"body: text | begin {rest} tool {closing}{more}",
        f"text: {_ANY_TEXT}",
        words.until("begin", marker),
    ]


def _calls(tools: Sequence[Tool], form: CallFormat) -> list[str]:
    lines = ["tool: " + " | ".join(f"tool_{number}" for number in range(len(tools)))]
    for number, tool in enumerate(tools):
        front = f'{{"name": {json.dumps(tool.name)}, "{form.arguments}": '
        lines.append(f'tool_{number}: {json.dumps(front)} args_{number} "}}"')
        lines.append(f"args_{number}: {_json({'type': 'object', **tool.schema})}")
    return lines
