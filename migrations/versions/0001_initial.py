"""The first schema: owners and keys, sessions, their turns, the tree of items, the token log."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ACTIVE = sa.text("status IN ('pending', 'running')")


def upgrade():
    _create_owners()
    _create_api_keys()
    _create_sessions()
    _create_responses()
    _create_nodes()
    _create_response_events()
    _create_token_spans()


def downgrade():
    # Their indexes go with them.
    for table in (
        "token_spans",
        "response_events",
        "nodes",
        "responses",
        "sessions",
        "api_keys",
        "owners",
    ):
        op.drop_table(table)


def _create_owners():
    op.create_table(
        "owners",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_owners"),
    )


def _create_api_keys():
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("owner_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("key_hash", sa.LargeBinary(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name="fk_api_keys_owner_id"),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("key_hash", name="uq_api_keys_key_hash"),
    )
    op.create_index("ix_api_keys_owner_id", "api_keys", ["owner_id"], unique=False)


def _create_sessions():
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("owner_id", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("instructions", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("head_id", sa.Text(), nullable=True),
        sa.Column("forked_from_id", sa.Text(), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("manifest", sa.JSON(), nullable=True),
        sa.Column("clock_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"], name="fk_sessions_owner_id"),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
    )
    op.create_index("ix_sessions_forked_from_id", "sessions", ["forked_from_id"], unique=False)
    op.create_index(
        "ix_sessions_recent", "sessions", ["owner_id", "updated_at", "id"], unique=False
    )


def _create_responses():
    op.create_table(
        "responses",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("parent_id", sa.Text(), nullable=True),
        sa.Column("branch_id", sa.Text(), nullable=False),
        sa.Column("client_turn_id", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("input_response_id", sa.Text(), nullable=False),
        sa.Column("reply_node_id", sa.Text(), nullable=False),
        sa.Column("partial_text", sa.Text(), nullable=True),
        sa.Column("delta_lengths", sa.JSON(), nullable=False),
        sa.Column("incomplete_reason", sa.Text(), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("usage", sa.JSON(), nullable=True),
        sa.Column("timing", sa.JSON(), nullable=True),
        sa.Column("runner_id", sa.Text(), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'completed', 'incomplete', 'cancelled', 'failed', "
            "'interrupted')",
            name=op.f("ck_responses_status"),
        ),
        sa.ForeignKeyConstraint(["parent_id"], ["responses.id"], name="fk_responses_parent_id"),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name="fk_responses_session_id"),
        sa.PrimaryKeyConstraint("id", name="pk_responses"),
        sa.UniqueConstraint("reply_node_id", name="uq_responses_reply_node_id"),
        sa.UniqueConstraint(
            "session_id", "client_turn_id", name="uq_responses_session_id_client_turn_id"
        ),
    )
    op.create_index(
        "ix_responses_active_lease",
        "responses",
        ["lease_until"],
        unique=False,
        sqlite_where=_ACTIVE,
        postgresql_where=_ACTIVE,
    )
    op.create_index("ix_responses_parent_id", "responses", ["parent_id"], unique=False)
    op.create_index("ix_responses_session", "responses", ["session_id", "id"], unique=False)
    op.create_index(
        "uq_responses_active_branch",
        "responses",
        ["branch_id"],
        unique=True,
        sqlite_where=_ACTIVE,
        postgresql_where=_ACTIVE,
    )


def _create_nodes():
    op.create_table(
        "nodes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("response_id", sa.Text(), nullable=False),
        sa.Column("parent_id", sa.Text(), nullable=True),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("is_output", sa.Boolean(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "kind IN ('message', 'function_call', 'function_call_output', 'reasoning', "
            "'compaction')",
            name=op.f("ck_nodes_kind"),
        ),
        sa.ForeignKeyConstraint(["parent_id"], ["nodes.id"], name="fk_nodes_parent_id"),
        sa.ForeignKeyConstraint(["response_id"], ["responses.id"], name="fk_nodes_response_id"),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name="fk_nodes_session_id"),
        sa.PrimaryKeyConstraint("id", name="pk_nodes"),
        sa.UniqueConstraint("response_id", "position", name="uq_nodes_response_id_position"),
    )
    op.create_index("ix_nodes_parent_id", "nodes", ["parent_id"], unique=False)
    op.create_index("ix_nodes_session", "nodes", ["session_id", "id"], unique=False)


def _create_response_events():
    op.create_table(
        "response_events",
        sa.Column("response_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["response_id"], ["responses.id"], name="fk_response_events_response_id"
        ),
        sa.PrimaryKeyConstraint("response_id", "seq", name="pk_response_events"),
        sqlite_with_rowid=False,
    )


def _create_token_spans():
    op.create_table(
        "token_spans",
        sa.Column("response_id", sa.Text(), nullable=False),
        sa.Column("base_id", sa.Text(), nullable=True),
        sa.Column("keep_tokens", sa.Integer(), nullable=False),
        sa.Column("num_prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("ids", sa.LargeBinary(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["base_id"], ["responses.id"], name="fk_token_spans_base_id"),
        sa.ForeignKeyConstraint(
            ["response_id"], ["responses.id"], name="fk_token_spans_response_id"
        ),
        sa.PrimaryKeyConstraint("response_id", name="pk_token_spans"),
    )
    op.create_index("ix_token_spans_base_id", "token_spans", ["base_id"], unique=False)
