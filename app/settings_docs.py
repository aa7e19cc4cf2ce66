"""The table of settings, written into the documents from the settings themselves.

`python -m app.settings_docs` writes it again; a test fails while a document differs.
"""

from collections.abc import Iterator
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from app.settings import Settings, flag, variable

BEGIN = "<!-- settings: written by `make docs` -->"
END = "<!-- /settings -->"

_PAGE = """# Settings

A value comes from the first of: a flag, a variable, the file `splice.toml`, the default. A name
that does not exist is refused, and the nearest one named. `splice check-config` shows what is in
effect; another file is named by `--config` or `SPLICE_CONFIG`.

```toml
# splice.toml
port = 9000
cache_bytes = "2GiB"
allowed_hosts = ["chat.example"]
```

Sizes take units (`512MiB`, `2GiB`), lists in flags and variables are separated by commas, and
`none` stands for an optional setting's absence.
"""


def group_of(field: FieldInfo) -> str:
    """The heading a setting stands under."""
    extra: Any = field.json_schema_extra
    return str(extra["group"])


def default_of(field: FieldInfo) -> str:
    """A setting's default as a person would write it; empty when there is none."""
    value = field.default
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.human_readable()) if hasattr(value, "human_readable") else str(value)


def meaning_of(field: FieldInfo) -> str:
    """What a setting means, with the words it may be where its description leaves some out."""
    described = field.description or ""
    choices = [_code(choice) for choice in _choices(field.annotation)]
    if all(choice in described for choice in choices):
        return described
    return f"{described} ({', '.join(choices)})"


def page() -> str:
    """The whole of docs/settings.md."""
    parts = [_PAGE]
    for group, names in groupby(
        Settings.model_fields, lambda n: group_of(Settings.model_fields[n])
    ):
        rows = [
            f"| `{flag(name)}` | `{variable(name)}` | {_code(default_of(field))} "
            f"| {meaning_of(field)} |"
            for name in names
            for field in [Settings.model_fields[name]]
        ]
        head = ["| flag | variable | default | meaning |", "|---|---|---|---|"]
        parts.append(f"\n## {group}\n\n" + "\n".join([*head, *rows]) + "\n")
    return "".join(parts)


def table() -> str:
    """The short table for the README."""
    rows = [
        f"| `{flag(name)}` | {_code(default_of(field))} | {meaning_of(field)} |"
        for name, field in Settings.model_fields.items()
    ]
    return "\n".join([BEGIN, "| flag | default | meaning |", "|---|---|---|", *rows, END])


def with_table(document: str) -> str:
    """The document with its table written again. Raises ValueError when the marks are missing."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document lacks the marks {BEGIN!r} and {END!r}")
    return before + table() + after


def documents(root: Path) -> Iterator[tuple[Path, str]]:
    """Each document that holds the table, with what it should say."""
    yield root / "docs" / "settings.md", page()
    readme = root / "README.md"
    yield readme, with_table(readme.read_text(encoding="utf-8"))


def _choices(kind: Any) -> tuple[str, ...]:  # noqa: ANN401 (an annotation can be anything)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return tuple(kind)
    return get_args(kind) if get_origin(kind) is Literal else ()


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def main() -> None:
    """Write every document of the checkout this module lies in."""
    for path, text in documents(Path(__file__).resolve().parent.parent):
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
