"""What is told of a database that can't be where it is said to be."""

import pytest

from app.database_place import check_place, check_there
from app.refusals import RefusalError
from app.settings import load_settings


def at(path):
    return load_settings({"database_url": f"sqlite:///{path}"}, environ={})


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(RefusalError, match=f"there is no folder {tmp_path / 'none'}; make it"):
        check_place(at(tmp_path / "none" / "a.db"))


def test_a_file_that_is_no_database_is_named(tmp_path):
    (tmp_path / "a.db").write_bytes(b"something else")

    with pytest.raises(RefusalError, match=r"a\.db is not a database: move it away"):
        check_place(at(tmp_path / "a.db"))


def test_a_folder_in_its_place_is_named(tmp_path):
    with pytest.raises(RefusalError, match="Is a directory"):
        check_place(at(tmp_path))


def test_a_database_that_is_yet_to_be_made_is_refused_only_where_none_may_be(tmp_path):
    check_place(at(tmp_path / "a.db"))
    with pytest.raises(RefusalError, match="there is no database at"):
        check_there(at(tmp_path / "a.db"))


def test_an_empty_file_may_become_one(tmp_path):
    (tmp_path / "a.db").touch()

    check_there(at(tmp_path / "a.db"))
