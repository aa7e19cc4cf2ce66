"""What a database's URL says of itself, and what is kept from being shown."""

from pathlib import Path

import pytest

from app.database_url import file_of, served, without_password


@pytest.mark.parametrize(
    "url", ["sqlite:///a.db", "sqlite+aiosqlite:////a.db", "postgresql://h/n", "postgres://h/n"]
)
def test_what_is_served_is_taken(url):
    assert served(url) == url


@pytest.mark.parametrize("url", ["mysql://h/n", "oracle://x", "splice.db", ""])
def test_another_kind_is_told_which_are_served(url):
    with pytest.raises(ValueError, match="only SQLite and PostgreSQL are served"):
        served(url)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///a/b.db?timeout=3", Path("a/b.db").absolute()),
        ("sqlite:////a/b.db", Path("/a/b.db")),
        ("sqlite://", None),
        ("sqlite:///:memory:", None),
        ("sqlite:///file:a.db?uri=true", None),
        ("postgresql://h/a.db", None),
    ],
)
def test_only_sqlite_has_a_file(url, path):
    assert file_of(url) == path


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:se@cret@h/n", "postgresql://me:***@h/n"),
        ("postgresql://me@h/n", "postgresql://me@h/n"),
        ("postgresql://me:a/b?c@h/n", "postgresql://me:***@h/n"),
        ("postgresql://h/n?user=me&password=a@b&x=y", "postgresql://h/n?user=me&password=***&x=y"),
        ("sqlite:///a.db", "sqlite:///a.db"),
        ("sqlite:////srv/a:1@b.db", "sqlite:////srv/a:1@b.db"),
    ],
)
def test_a_password_is_not_shown(url, shown):
    assert without_password(url) == shown
