"""Words looked for in an owner's sessions: titles, and what was said. Part of `store`.

What is looked for is words, whatever signs stand between them: nothing in it is an operator, and
nothing becomes SQL. Case and accents don't matter. All words must be there; the last one may be the
beginning of a longer one, for whoever types.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, cast

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    column,
    func,
    literal_column,
    or_,
    select,
    table,
)
from sqlalchemy.ext.asyncio import AsyncSession

from sessions.errors import InvalidInputError
from sessions.folding import excerpt, fold
from sessions.search_index import DICTIONARY, MAX_TSVECTOR_CHARS, TABLE, SearchKind
from sessions.search_types import SearchHit, SearchPage
from sessions.tables import NodeRow, SearchEntryRow, SessionRow
from sessions.types import ItemId, OwnerId, SessionId, TurnId

MAX_WORDS = 32

_FTS: Final = table(TABLE, column("rowid"))


def words_of(query: str) -> list[str]:
    """What to look for; signs alone are no words."""
    words = [word for word in fold(query).split() if any(map(str.isalnum, word))]
    return words[:MAX_WORDS]


async def find(
    tx: AsyncSession,
    kind: SearchKind,
    owner: OwnerId,
    words: Sequence[str],
    *,
    limit: int,
    after: str | None,
) -> SearchPage:
    """A page of hits, newest first; `after` is the id of the last one before.

    Raises InvalidInputError for an unknown `after`.
    """
    if not words:
        return SearchPage(data=(), has_more=False)
    query = _query(kind, words).where(SessionRow.owner_id == owner, SessionRow.deleted_at.is_(None))
    if after is not None:
        query = query.where(SearchEntryRow.id < await _entry_of(tx, owner, after))
    query = query.order_by(SearchEntryRow.id.desc()).limit(limit + 1)
    found = (await tx.execute(query)).all()
    # Beside the event loop: there may be many, and long ones.
    hits = await asyncio.to_thread(lambda: tuple(_to_hit(words, *row) for row in found[:limit]))
    return SearchPage(data=hits, has_more=len(found) > limit)


async def _entry_of(tx: AsyncSession, owner: OwnerId, hit_id: str) -> int:
    is_title = and_(SearchEntryRow.node_id.is_(None), SearchEntryRow.session_id == hit_id)
    query = (
        select(SearchEntryRow.id)
        .join(SessionRow, SessionRow.id == SearchEntryRow.session_id)
        .where(SessionRow.owner_id == owner, or_(SearchEntryRow.node_id == hit_id, is_title))
    )
    entry = (await tx.scalars(query)).one_or_none()
    if entry is None:
        raise InvalidInputError(f"no result has the id {hit_id!r}", param="after")
    return entry


def _query(kind: SearchKind, words: Sequence[str]) -> Select[Any]:
    if kind is SearchKind.FTS5:
        return _in_fts5(words)
    if kind is SearchKind.TSVECTOR:
        return _in_tsvector(words)
    return _in_scan(words)


def _selected() -> Select[Any]:
    selected = (
        select(
            SearchEntryRow.session_id,
            SearchEntryRow.response_id,
            SearchEntryRow.node_id,
            SessionRow.title,
            NodeRow.role,
            NodeRow.text,
        )
        .select_from(SearchEntryRow)
        .join(SessionRow, SessionRow.id == SearchEntryRow.session_id)
        .outerjoin(NodeRow, NodeRow.id == SearchEntryRow.node_id)
    )
    return cast("Select[Any]", selected)


def _in_fts5(words: Sequence[str]) -> Select[Any]:
    # A quoted string is only words to FTS5; a quote in it is doubled.
    quoted = " ".join('"' + word.replace('"', '""') + '"' for word in words) + "*"
    index: ColumnElement[Any] = literal_column(TABLE)
    return (
        _selected().join(_FTS, _FTS.c.rowid == SearchEntryRow.id).where(index.op("MATCH")(quoted))
    )


def _in_tsvector(words: Sequence[str]) -> Select[Any]:
    dictionary: ColumnElement[Any] = literal_column(f"'{DICTIONARY}'")
    *whole, last = words
    beginning = "'" + last.replace("\\", "\\\\").replace("'", "''") + "':*"
    wanted: ColumnElement[Any] = func.to_tsquery(dictionary, beginning)
    for word in whole:
        wanted = wanted.op("&&")(func.plainto_tsquery(dictionary, word))
    # Word for word what is indexed, or else the index is not used.
    indexed = func.left(SearchEntryRow.text, literal_column(str(MAX_TSVECTOR_CHARS)))
    vector = func.to_tsvector(dictionary, indexed)
    return _selected().where(vector.op("@@")(wanted))


def _in_scan(words: Sequence[str]) -> Select[Any]:
    return _selected().where(
        *(SearchEntryRow.text.icontains(word, autoescape=True) for word in words)
    )


def _to_hit(
    words: Sequence[str],
    session_id: str,
    turn_id: str | None,
    item_id: str | None,
    title: str | None,
    role: str | None,
    text: str | None,
) -> SearchHit:
    snippet, highlights = excerpt((title if item_id is None else text) or "", words)
    return SearchHit(
        session_id=SessionId(session_id),
        turn_id=TurnId(turn_id) if turn_id is not None else None,
        item_id=ItemId(item_id) if item_id is not None else None,
        title=title,
        role=role,
        snippet=snippet,
        highlights=highlights,
    )
