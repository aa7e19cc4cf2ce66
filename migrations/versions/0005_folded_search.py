"""Search entries hold their text without case and accents, the same on every database."""

import unicodedata

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_BATCH = 500


def upgrade():
    connection = op.get_bind()
    _drop_index(connection)
    entries = sa.table("search_entries", sa.column("id"), sa.column("text"))
    after = 0
    while True:
        query = sa.select(entries.c.id, entries.c.text).where(entries.c.id > after)
        found = connection.execute(query.order_by(entries.c.id).limit(_BATCH)).all()
        for entry_id, text in found:
            change = sa.update(entries).where(entries.c.id == entry_id)
            connection.execute(change.values(text=_fold(text)))
        if len(found) < _BATCH:
            return
        after = found[-1][0]


def downgrade():
    _drop_index(op.get_bind())
    op.execute(
        "UPDATE search_entries SET text = (SELECT text FROM nodes WHERE id = node_id)"
        " WHERE node_id IS NOT NULL"
    )
    op.execute(
        "UPDATE search_entries SET text ="
        " (SELECT title FROM sessions WHERE sessions.id = search_entries.session_id)"
        " WHERE node_id IS NULL"
    )


def _drop_index(connection):
    """The index over them is made again at the next start."""
    if connection.dialect.name == "sqlite":
        op.execute("DROP TRIGGER IF EXISTS search_entries_added")
        op.execute("DROP TRIGGER IF EXISTS search_entries_deleted")
        op.execute("DROP TABLE IF EXISTS search_index")


def _fold(text):
    return "".join(map(_folded, unicodedata.normalize("NFC", text)))


def _folded(character):
    if character.isascii():
        return character.lower()
    base = [c for c in unicodedata.normalize("NFD", character) if not unicodedata.combining(c)]
    plain = base[0] if len(base) == 1 else character
    small = plain.lower()
    return small if len(small) == 1 else plain
