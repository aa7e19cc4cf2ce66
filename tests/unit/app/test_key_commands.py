"""`splice keys`, on a database of its own."""

import pytest
from typer.testing import CliRunner

from app.cli import app
from app.data_dir import open_data_dir


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def run(*args):
    return CliRunner().invoke(app, args)


def made(*args):
    result = run("keys", "create", *args)
    assert result.exit_code == 0, result.output
    return result


def listed():
    result = run("keys", "list")
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()[1:]]


def test_the_secret_alone_is_on_standard_output_and_shown_once():
    result = made("--owner", "ann", "--name", "laptop")

    assert result.stdout.startswith("sk-splice-")
    assert len(result.stdout.split()) == 1
    assert "every call of the API needs a key" in result.stderr
    ((key_id, owner, name, scopes, *_, state),) = listed()
    assert (owner, name, scopes, state) == ("ann", "laptop", "chat", "valid")
    assert key_id in result.stderr
    assert result.stdout.strip() not in run("keys", "list").output


def test_scopes_add_up():
    made("--owner", "ann", "--scope", "chat", "--scope", "admin")

    assert "admin, chat" in run("keys", "list").stdout


def test_no_id_is_cut_in_a_narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    made("--owner", "ann", "--name", "the laptop in the kitchen")
    ((key_id, *_),) = listed()

    assert run("keys", "revoke", key_id).exit_code == 0


def test_only_the_first_key_closes_the_server():
    made("--owner", "ann")

    assert "every call" not in made("--owner", "bob").stderr
    assert [row[1] for row in listed()] == ["ann", "bob"]


def test_keys_are_made_and_revoked_beside_a_running_server(tmp_path):
    made("--owner", "ann")
    with open_data_dir(tmp_path / "data"):
        made("--owner", "bob")
        assert run("keys", "revoke", listed()[0][0]).exit_code == 0

    assert "revoked" in listed()[0]
    assert listed()[1][-1] == "valid"


def test_an_expiring_key_says_until_when():
    made("--owner", "ann", "--expires-days", "2")
    made("--owner", "bob", "--expires-days", "0")

    assert "until" in listed()[0]
    assert "expired" in listed()[1]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("keys", "create"), 2),
        (("keys", "create", "--owner", "a b"), 1),
        (("keys", "create", "--owner", "ann", "--scope", "root"), 2),
        (("keys", "list"), 1),
        (("keys", "revoke", "key_none"), 1),
    ],
)
def test_what_cannot_be_done_ends_in_a_sentence(args, code):
    result = run(*args)

    assert result.exit_code == code
    assert "Traceback" not in result.output


def test_which_database_is_used_is_said_and_that_it_is_new(tmp_path):
    place = tmp_path / "data" / "splice.db"

    assert f"a new database: {place}" in made("--owner", "ann").stderr
    assert f"new database: {place}" not in made("--owner", "bob").stderr
    assert f"database: {place}" in run("keys", "list").stderr


@pytest.mark.parametrize("command", [("list",), ("revoke", "key_1"), ("disable-owner", "ann")])
@pytest.mark.parametrize("place", ["data/splice.db", "other.db"])
def test_only_a_new_key_makes_a_database(tmp_path, command, place):
    named = () if place == "data/splice.db" else ("--database-url", f"sqlite:///{place}")
    result = run("keys", *command, *named)

    assert result.exit_code == 1
    assert f"there is no database at {tmp_path / place}" in result.stderr
    assert "--data-dir or --database-url" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_scope_that_is_none_is_told_those_there_are():
    result = run("keys", "create", "--owner", "ann", "--scope", "root")

    assert result.stderr == "splice: --scope root: there is no such scope, only chat and admin\n"


def test_a_password_is_never_shown():
    result = run("keys", "list", "--database-url", "postgresql://me:secret@127.0.0.1:9/none")

    assert result.exit_code == 1
    assert "postgresql://me:***@127.0.0.1:9/none" in result.stderr
    assert "secret" not in result.output


def test_an_unknown_key_cannot_be_revoked():
    made("--owner", "ann")
    result = run("keys", "revoke", "key_none")

    assert result.exit_code == 1
    assert "no key has the id 'key_none'" in result.stderr


def test_an_address_that_others_reach_is_refused_until_there_is_a_key():
    result = run("serve", "--host", "0.0.0.0", "--port", "0")

    assert result.exit_code == 2
    assert "can be reached from other machines" in result.stderr
    assert "splice keys create" in result.stderr


def test_a_disabled_owner_has_no_keys_and_gets_none_until_enabled():
    made("--owner", "ann")
    made("--owner", "ann")
    made("--owner", "bob")
    disabled = run("keys", "disable-owner", "ann")
    refused = run("keys", "create", "--owner", "ann")
    again = run("keys", "disable-owner", "ann")

    assert disabled.exit_code == again.exit_code == 0
    assert "keys revoked: 2" in disabled.stderr
    assert "keys revoked: 0" in again.stderr
    assert refused.exit_code == 1
    assert "the owner ann is disabled" in refused.stderr
    assert [row[-1] == "valid" for row in listed()] == [False, False, True]

    assert run("keys", "enable-owner", "ann").exit_code == 0
    made("--owner", "ann")
    assert listed()[-1][-1] == "valid"


@pytest.mark.parametrize("command", ["disable-owner", "enable-owner"])
def test_an_owner_who_was_never_here_is_named(command):
    made("--owner", "ann")
    result = run("keys", command, "eve")

    assert result.exit_code == 1
    assert "no owner has the name 'eve'" in result.stderr
