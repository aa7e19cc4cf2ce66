"""What can be searched, filled from what there is; the index over it is made at every start."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "search_entries",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("response_id", sa.Text(), nullable=True),
        sa.Column("node_id", sa.Text(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name="fk_search_entries_node_id"),
        sa.ForeignKeyConstraint(
            ["response_id"], ["responses.id"], name="fk_search_entries_response_id"
        ),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name="fk_search_entries_session_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_search_entries"),
        sa.UniqueConstraint("node_id", name="uq_search_entries_node_id"),
    )
    op.create_index("ix_search_entries_session_id", "search_entries", ["session_id"])
    op.execute(
        "INSERT INTO search_entries (session_id, text)"
        " SELECT id, title FROM sessions WHERE title IS NOT NULL ORDER BY created_at, id"
    )
    op.execute(
        "INSERT INTO search_entries (session_id, response_id, node_id, text)"
        " SELECT session_id, response_id, id, text FROM nodes WHERE text != ''"
        " ORDER BY created_at, id"
    )


def downgrade():
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TABLE IF EXISTS search_index")
    op.drop_table("search_entries")
