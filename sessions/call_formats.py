"""How models write calls, and how to tell which way one does. Pure.

A tokenizer may bring a `response_template` of its own, which transformers parses by; for those that
don't there is one here for each family, told by the words its chat template writes.
"""

from dataclasses import dataclass, field
from typing import Any

# What no prompt has: the parser is given just the part of it that the reply begins with.
_NO_ANCHOR = "\0start\0"
_TEXT = {"content": "text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFormat:
    """One way of writing calls.

    `opening` and `closing` stand around each call, or around all if `is_list`; a reply that has to
    be a call is held to it. `is_bare`: there is nothing around a call, so a reply that begins
    as one must be read to its end before it can be told. `arguments` is the key they stand under.
    `marks` are what may be special tokens of what stands there.
    `is_json`: between opening and closing stands JSON that `CallScanner` reads.
    """

    name: str
    opening: str = ""
    closing: str = ""
    arguments: str = "arguments"
    is_list: bool = False
    is_json: bool = True
    marks: tuple[str, ...] = ()
    template: dict[str, Any] = field(default_factory=dict, hash=False, compare=False, repr=False)

    @property
    def is_bare(self) -> bool:
        """Whether nothing tells a call from other JSON."""
        return not self.opening


def _template(calls: dict[str, Any]) -> dict[str, Any]:
    fields = {"tool_calls": {"repeats": True, "content": "text", **calls}, "content": _TEXT}
    return {"defaults": {}, "start_anchor": _NO_ANCHOR, "fields": fields}


# The white space in front goes with the call, and is not the answer's.
HERMES = CallFormat(
    name="hermes",
    marks=("<tool_call>", "</tool_call>"),
    opening="<tool_call>\n",
    closing="\n</tool_call>",
    template=_template({"open_pattern": r"\s*<tool_call>", "close": "</tool_call>"}),
)
MISTRAL = CallFormat(
    name="mistral",
    marks=("[TOOL_CALLS]",),
    opening="[TOOL_CALLS]",
    is_list=True,
    template=_template({"open_pattern": r"\s*\[TOOL_CALLS\]"}),
)
MISTRAL_NAMED = CallFormat(
    name="mistral_named",
    marks=("[TOOL_CALLS]", "[ARGS]"),
    opening="[TOOL_CALLS]",
    is_json=False,
    template=_template(
        {
            "open_pattern": r"\s*\[TOOL_CALLS\](?P<name>[^\[\s{]+)(?:\[ARGS\]|(?=\s*\{))",
            "close_pattern": r"(?=\[TOOL_CALLS\])",
            "content": "json",
            "transform": {"function": {"name": "{name}", "arguments": "{content}"}},
        }
    ),
)
LLAMA = CallFormat(
    name="llama",
    marks=("<|python_tag|>",),
    arguments="parameters",
    template=_template({"open_pattern": r"\A\s*(?:<\|python_tag\|>)?\s*(?=[\[{])"}),
)
QWEN_XML = CallFormat(
    name="qwen_xml",
    marks=("<tool_call>", "</tool_call>"),
    opening="<tool_call>\n",
    closing="\n</tool_call>",
    is_json=False,
    template=_template(
        {
            "open_pattern": r"\s*<tool_call>\s*<function=(?P<name>[^>\n]+)>",
            "close": "</tool_call>",
            "content": "xml-inline",
            "content_args": {
                "tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</parameter>"
            },
            "transform": {"function": {"name": "{name}", "arguments": "{content}"}},
        }
    ),
)
GEMMA = CallFormat(
    name="gemma",
    marks=("<|tool_call>", "<tool_call|>", '<|"|>'),
    opening="<|tool_call>call:",
    is_json=False,
    template=_template(
        {
            "open_pattern": r"\s*<\|tool_call>call:(?P<name>\w+)",
            "close": "<tool_call|>",
            "content": "json",
            "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
            "transform": {"function": {"name": "{name}", "arguments": "{content}"}},
        }
    ),
)

# Of what a template writes, what only this family's does; the first that fits.
_SIGNS = (
    (("<|tool_call>call:",), GEMMA),
    (("<tool_call>", "<function="), QWEN_XML),
    (("<tool_call>",), HERMES),
    (("[TOOL_CALLS]", "[ARGS]"), MISTRAL_NAMED),
    (("[TOOL_CALLS]",), MISTRAL),
    (("<|start_header_id|>", '"parameters"'), LLAMA),
    (("<|python_tag|>",), LLAMA),
)


def find_format(template: str) -> CallFormat:
    """The format that a chat template's source speaks of; `HERMES`, which most models were shown,
    if it speaks of none."""
    for signs, form in _SIGNS:
        if all(sign in template for sign in signs):
            return form
    return HERMES


def own_format(response_template: dict[str, Any], likely: CallFormat) -> CallFormat:
    """The format of a tokenizer that says itself how its replies are read."""
    return CallFormat(
        name="own",
        opening=likely.opening,
        closing=likely.closing,
        arguments=likely.arguments,
        is_list=likely.is_list,
        is_json=False,
        template=response_template,
    )
