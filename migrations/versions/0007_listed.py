"""Sessions that agents' single responses lie in are in no list unless asked for."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_RECENT = "ix_sessions_recent"


def upgrade():
    op.add_column(
        "sessions", sa.Column("is_listed", sa.Boolean(), server_default=sa.true(), nullable=False)
    )
    op.drop_index(_RECENT, "sessions")
    op.create_index(_RECENT, "sessions", ["owner_id", "is_listed", "updated_at", "id"])


def downgrade():
    op.drop_index(_RECENT, "sessions")
    op.create_index(_RECENT, "sessions", ["owner_id", "updated_at", "id"])
    op.drop_column("sessions", "is_listed")
