"""Where other surfaces and servers put an answer's form.

Unknown fields are ignored, but whoever sends one of these counts on the form: silence would lie.
"""

from collections.abc import Mapping
from typing import Any, Final

from sessions.errors import UnsupportedInputError

_OF_OTHER_SERVERS: Final = (
    "ebnf",
    "format",
    "grammar",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "json_schema",
    "regex",
    "structural_tag",
    "structured_outputs",
)
_OF_SURFACES: Final = ("response_format", "text")


def refuse_foreign_form(body: Mapping[str, Any], *, form: str | None) -> None:
    """Raise UnsupportedInputError for a form in a field that isn't read here.

    `form` is the field that this surface reads (`response_format`, `text.format`), which the
    message names; None where there are no forms.
    """
    advice = f"; a form goes in {form}" if form else "; /v1/chat/completions takes forms"
    for name in _OF_OTHER_SERVERS:
        if body.get(name):
            raise UnsupportedInputError(f"{name} is not supported{advice}", param=name)
    for name in _OF_SURFACES:
        if name != (form or "").partition(".")[0] and _is_form(body.get(name)):
            raise UnsupportedInputError(f"{name} is not supported{advice}", param=name)


def _is_form(value: object) -> bool:
    """Whether a `response_format` or a `text` asks for more than free text."""
    wanted = value.get("format", value) if isinstance(value, dict) else None
    return isinstance(wanted, dict) and wanted.get("type") not in (None, "text")
