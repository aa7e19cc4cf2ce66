"""Responses, and items of a conversation, can be deleted by themselves."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_TABLES = ("responses", "nodes")


def upgrade():
    for table in _TABLES:
        op.add_column(table, sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True))


def downgrade():
    for table in _TABLES:
        op.drop_column(table, "deleted_at")
