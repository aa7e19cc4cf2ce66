"""What a chat shows: replies, how they went, tables, and what went wrong. Holds no state."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from app.terminal.markdown import GrowingMarkdown, clean
from splice import SessionInfo, Turn
from splice.json_value import Json

_NUMBERS = ("tokens", "computed", "blocks", "shared", "size", "idle")
# So wide is a list whose ids stand on one line each; in a narrower terminal they are folded.
_ROOM_FOR_IDS = 72
_CUTS = {
    "max_output_tokens": "it is at its longest; /continue goes on",
    "deadline": "its time was up; /continue goes on",
    "interrupted": "the server was stopped; /continue goes on",
}


class Screen:
    """A terminal that people look at."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def reply(self) -> GrowingMarkdown:
        """Show a reply as it comes."""
        return GrowingMarkdown(self._console)

    def note(self, text: str) -> None:
        """Say something beside the conversation."""
        self._console.print(Text(clean(text), style="dim"), soft_wrap=True)

    def fail(self, text: str) -> None:
        """Say what went wrong."""
        self._console.print(Text(clean(text), style="red"), soft_wrap=True)

    def ended(self, turn: Turn) -> None:
        """Say how a reply went, and why it is not whole if it isn't."""
        self._console.print()
        if turn.status != "completed":
            show = self.fail if turn.status == "failed" else self.note
            show(fate_of(turn))
        if facts := facts_of(turn):
            self.note(facts)
        self._console.print()

    def exchange(self, turn: Turn) -> None:
        """Show a turn that is over."""
        self._console.print(Padding(Text(clean(turn.input_text), style="bold"), (0, 0, 1, 0)))
        with self.reply() as reply:
            reply.add(turn.text)
        self._console.print()

    def tables(self, kv: Json) -> None:
        """Show where a conversation's state lies."""
        if not kv["tables"]:
            self.note("nothing of this conversation is in the cache: its next turn computes it")
            return
        table = _table(
            "behind turn", "tokens", "computed", "blocks", "shared", "in", "size", "idle"
        )
        for entry in kv["tables"]:
            blocks: Sequence[Json] = entry["blocks"]
            table.add_row(
                escape(entry["response_id"]),
                f"{entry['num_tokens']:,}",
                f"{entry['num_computed_tokens']:,}",
                f"{len(blocks):,}",
                f"{sum(block['num_holders'] > 1 for block in blocks):,}",
                ", ".join(sorted({block["tier"] for block in blocks})),
                _size(entry["num_bytes"]),
                "in use" if entry["running"] else f"{entry['idle_s']:.0f} s",
            )
        self._console.print(table)

    def sessions(self, found: Iterable[SessionInfo], current: str) -> None:
        """List conversations, numbered from 1. No id is cut, however narrow the terminal is."""
        table = _table("", "", "id", "title", "last used")
        if self._console.width >= _ROOM_FOR_IDS:
            table.columns[2].no_wrap = table.columns[4].no_wrap = True
        for number, info in enumerate(found, 1):
            used = datetime.fromtimestamp(info.updated_at, UTC).astimezone()
            table.add_row(
                "*" if info.id == current else "",
                str(number),
                escape(info.id),
                escape(clean(info.title or "")),
                f"{used:%Y-%m-%d %H:%M}",
            )
        self._console.print(table)

    def commands(self, rows: Iterable[tuple[str, str]]) -> None:
        """List what can be typed."""
        table = Table.grid(padding=(0, 2))
        for usage, meaning in rows:
            table.add_row(Text(usage, style="bold"), meaning)
        self._console.print(table)


def facts_of(turn: Turn) -> str:
    """How long a reply took and what it reused; empty where that is not known."""
    metrics = turn.metrics
    if metrics is None:
        return ""
    facts = []
    if metrics.ttft_ms is not None:
        facts.append(f"{metrics.ttft_ms:,.0f} ms to the first token")
    if metrics.tokens_per_second is not None:
        facts.append(f"{metrics.tokens_per_second:,.1f} tokens/s")
    facts.append(f"{metrics.reused:,} of {metrics.input_tokens:,} tokens reused")
    return " · ".join(facts)


def fate_of(turn: Turn) -> str:
    """Why a reply is not whole, in words."""
    if turn.error is not None:
        return f"the turn failed: {turn.error.message}"
    if turn.status == "cancelled":
        return "stopped"
    reason = turn.incomplete_reason or "unknown"
    return f"the reply is cut: {_CUTS.get(reason, reason)}"


def _table(*columns: str) -> Table:
    table = Table(*columns, box=None, header_style="dim")
    for column in table.columns:
        column.overflow = "fold"
        if column.header in _NUMBERS:
            column.justify = "right"
    return table


def _size(num_bytes: Any) -> str:  # noqa: ANN401 (from the wire)
    return f"{num_bytes / 1024**2:,.1f} MiB"
