"""What happens to a session is kept for a while, for those who watch it."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "session_events",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=True),
        sa.Column("fields", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_session_events_session_id_sessions")
        ),
        sa.PrimaryKeyConstraint("session_id", "revision", name=op.f("pk_session_events")),
        sqlite_with_rowid=False,
    )


def downgrade():
    op.drop_table("session_events")
