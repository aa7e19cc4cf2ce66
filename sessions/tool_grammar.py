"""Grammars that hold a reply to the tools it may call, in Lark as llguidance has it. Pure.

What stands around a call is the model's own habit; between it, JSON by the tool's schema. A reply
that need not call is free until it opens a call.
"""

import json
from collections.abc import Sequence

from model.grammar import Grammar, GrammarKind
from sessions.call_formats import CallFormat
from sessions.tools import MAX_CALLS, Tool, ToolChoice, ToolMode

PARAM = "tool_choice"
_ANY_TEXT = r"/(.|\n)*/"


def call_grammar(
    tools: Sequence[Tool],
    choice: ToolChoice,
    form: CallFormat,
    *,
    marker: int | None = None,
    reasoning: str | None = None,
) -> Grammar | None:
    """A form for the reply; None where it is free, or nothing tells a call in it from text.

    Calls are written as `form` says, which must be one in JSON.
    `marker` is the id of the token that opens a call, where it is no text; `reasoning` is what ends
    the reasoning that the reply begins in.
    """
    offered = choice.of(tools)
    if not offered or (choice.mode is ToolMode.AUTO and not _is_bound(tools, choice)):
        return None
    rules = _Rules(form, marker, reasoning)
    many = MAX_CALLS if choice.is_parallel else 1
    if choice.mode is ToolMode.REQUIRED:
        return rules.required(offered, many)
    return rules.free(offered, many)


def behind_reasoning(grammar: Grammar, end: str) -> Grammar:
    """The same form, behind reasoning that ends with these words."""
    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            body = f"%json {grammar.text}"
        case GrammarKind.JSON_OBJECT:
            body = '%json {"type": "object"}'
        case _:
            # A whole grammar of its own is taken as it is: its author says where reasoning goes.
            return grammar
    lark = f"%llguidance {{}}\nstart: head body\n{_head(end)}body: {body}\n"
    return Grammar(kind=GrammarKind.LARK, text=lark, param=grammar.param)


def _is_bound(tools: Sequence[Tool], choice: ToolChoice) -> bool:
    """Whether a reply that may call must be watched when it does."""
    offered = choice.of(tools)
    return not choice.is_parallel or len(offered) < len(tools) or any(t.strict for t in offered)


def _head(end: str) -> str:
    return f"head: think /\\s{{0,4}}/\nthink[lazy]: {_ANY_TEXT} {json.dumps(end)}\n"


class _Rules:
    """Writes grammars for one format."""

    def __init__(self, form: CallFormat, marker: int | None, reasoning: str | None) -> None:
        self._form = form
        self._reasoning = reasoning
        opening = form.opening if marker is None else form.opening[len(form.opening.strip()) :]
        self._opening = " ".join(
            [*([f"<[{marker}]>"] if marker is not None else []), *_literal(opening)]
        )

    def required(self, tools: Sequence[Tool], many: int) -> Grammar:
        """At least one call, and nothing else."""
        more = f" (sep call){{0,{many - 1}}}" if many > 1 else ""
        if self._form.is_list:
            body, sep = f'{self._opening} "[" call{more} "]"', '", "'
            call = "tool"
        else:
            body, sep = f"call{more}", '"\\n"'
            call = self._around("tool")
        return self._written(body, [f"sep: {sep}", f"call: {call}"], tools)

    def free(self, tools: Sequence[Tool], many: int) -> Grammar | None:
        """Text, and calls behind it; None where nothing tells a call from text."""
        if self._form.is_bare or self._form.is_list:
            return None
        more = f' ("\\n" {self._around("tool")}){{0,{many - 1}}}' if many > 1 else ""
        marker = self._form.opening.strip()
        rest = self._form.opening[len(marker) :]
        rules = [
            f"text: {_ANY_TEXT}",
            f"begin[lazy]: {_ANY_TEXT} {json.dumps(marker)}",
        ]
        closing = " ".join(_literal(self._form.closing))
        first = f"begin {' '.join(_literal(rest))} tool {closing}"
        return self._written(f"text | {first}{more}", rules, tools)

    def _around(self, call: str) -> str:
        return " ".join([self._opening, call, *_literal(self._form.closing)]).strip()

    def _written(self, body: str, rules: list[str], tools: Sequence[Tool]) -> Grammar:
        head = "" if self._reasoning is None else "head "
        lines = ["%llguidance {}", f"start: {head}body", f"body: {body}", *rules]
        if self._reasoning is not None:
            lines.append(_head(self._reasoning).rstrip("\n"))
        lines.append("tool: " + " | ".join(f"tool_{n}" for n in range(len(tools))))
        for number, tool in enumerate(tools):
            front = f'{{"name": {json.dumps(tool.name)}, "{self._form.arguments}": '
            schema = json.dumps({"type": "object", **tool.schema})
            lines.append(f'tool_{number}: {json.dumps(front)} args_{number} "}}"')
            lines.append(f"args_{number}: %json {schema}")
        return Grammar(kind=GrammarKind.LARK, text="\n".join(lines) + "\n", param=PARAM)


def _literal(text: str) -> list[str]:
    return [json.dumps(text)] if text else []
