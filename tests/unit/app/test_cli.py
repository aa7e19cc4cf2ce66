"""The command line, as far as it gets without a model."""

import socket
import stat

import pytest
from typer.testing import CliRunner

from app.cli import app
from app.settings import Settings, flag


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def run(*args, **environ):
    return CliRunner().invoke(app, args, env=environ)


def test_serve_has_a_flag_for_every_setting():
    shown = run("serve", "--help").output

    assert not [name for name in Settings.model_fields if flag(name) not in shown]


def test_a_command_has_flags_for_what_it_looks_at_and_no_more():
    shown = run("models", "fetch", "-h").output

    assert [name for name in Settings.model_fields if f"{flag(name)} " in shown] == [
        "data_dir",
        "model",
    ]


def test_check_config_shows_what_is_in_effect():
    result = run("check-config", "--port", "9000", SPLICE_CACHE_BYTES="1KiB")

    assert result.exit_code == 0
    values = dict(
        line.split(maxsplit=1) for line in result.output.splitlines() if " " in line.strip()
    )
    assert values["port"].strip() == "9000"
    assert values["cache_bytes"].strip() == "1024"


def test_a_switch_that_is_on_by_default_can_be_turned_off():
    shown = run("check-config", "--no-auto-titles").output

    assert "auto_titles false" in " ".join(shown.lower().split())


def test_check_config_hides_the_databases_password():
    shown = run("check-config", "--database-url", "postgresql://me:secret@host/db").output

    assert "secret" not in shown
    assert "postgresql://me:***@host/db" in shown


def test_a_wrong_value_ends_in_a_sentence_and_two():
    result = run("check-config", "--port", "many")

    assert result.exit_code == 2
    assert result.stderr.startswith("splice: port (flag --port) = 'many'")


def test_a_misspelt_flag_names_the_nearest():
    result = run("serve", "--token-buget", "3")

    assert result.exit_code == 2
    assert "--token-budget" in result.stderr


def test_a_misspelt_variable_stops_every_command():
    result = run("serve", SPLICE_MODLE="default")

    assert result.exit_code == 2
    assert "SPLICE_MODEL?" in result.stderr


def test_settings_lists_them_all():
    shown = run("settings").output

    assert all(f"SPLICE_{name.upper()}" in shown for name in Settings.model_fields)


def test_a_busy_port_ends_in_a_sentence_and_one(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("serve", "--port", str(port))

    assert result.exit_code == 1
    assert f"can't listen on 127.0.0.1 port {port}" in result.stderr


def test_a_data_folder_that_is_a_file_ends_in_a_sentence_and_one(tmp_path):
    (tmp_path / "data").write_text("")

    result = run("serve", "--port", "0")

    assert result.exit_code == 1
    assert "the data folder data can't be written" in result.stderr


def test_fetching_a_model_that_is_not_there_ends_in_a_sentence_and_one():
    result = run("models", "fetch", "--model", "./nowhere.gguf")

    assert result.exit_code == 1
    assert "there is no file or folder './nowhere.gguf'" in result.stderr


def test_a_database_is_made_and_upgraded(tmp_path):
    first, second = run("db", "upgrade"), run("db", "upgrade")

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert stat.S_ISREG((tmp_path / "data" / "splice.db").stat().st_mode)


def test_a_database_is_checked_without_being_made_or_changed(tmp_path):
    none_yet = run("db", "check")
    assert not (tmp_path / "data").exists()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "splice.db").touch()
    empty = run("db", "check")
    run("db", "upgrade")
    current = run("db", "check")

    assert (none_yet.exit_code, empty.exit_code, current.exit_code) == (1, 1, 0)
    assert f"there is no database at {tmp_path / 'data' / 'splice.db'}" in none_yet.stderr
    assert "run `splice db upgrade`" in empty.stderr
    assert "at this version's schema" in current.output


def test_a_foreign_database_ends_in_a_sentence_and_one(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "splice.db").write_bytes(b"something else entirely" * 200)

    result = run("db", "upgrade")

    assert result.exit_code == 1
    assert result.stderr.startswith("splice: ")
    assert "Traceback" not in result.stderr


def test_version_is_a_number():
    assert run("--version").output.strip() != ""
