"""What a request left unsaid, said: a response shows its tools, choice and form in full.

Clients read these fields by typed models in which they are not optional. Pure; the shapes of the
values are checked elsewhere (`app/openai/response_tools.py`), so any may come.
"""

from typing import Any, Final

Json = dict[str, Any]

_TOOL: Final[Json] = {"description": None, "parameters": None, "strict": False}
_SCHEMA: Final[Json] = {"name": "response", "description": None, "strict": False}
_TEXT: Final[Json] = {"type": "text"}


def whole_tools(tools: list[Json]) -> list[Json]:
    """The tools; one that did not say so is not strict."""
    return [{**_TOOL, **tool} for tool in tools]


def whole_choice(choice: str | Json) -> str | Json:
    """What may be called; of allowed tools, none must be unless that was said."""
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        return {"mode": "auto", **choice}
    return choice


def whole_text(text: Json) -> Json:
    """How the answer is written: as text, unless a form was named."""
    form = text.get("format")
    if form is None:
        form = _TEXT
    elif isinstance(form, dict) and form.get("type") == "json_schema":
        form = {**_SCHEMA, **form}
    return {**text, "format": form}


def whole_reasoning(reasoning: Json) -> Json:
    """How hard to think; nothing is done about either here."""
    return {"effort": None, "summary": None, **reasoning}
