"""Alembic's entry: runs on the connection that `sessions.database` hands over, in its transaction.

There is no offline mode and no URL here: the program migrates its own database when it starts.
"""

from alembic import context

from sessions.database import VERSION_TABLE
from sessions.tables import Row

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Row.metadata,
    version_table=VERSION_TABLE,
    # SQLite can't alter most things in place: Alembic then copies the table.
    render_as_batch=connection.dialect.name == "sqlite",
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
