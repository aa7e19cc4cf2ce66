"""The data folder: held by one server, and known again by its runner id."""

import fcntl
import os
from threading import Timer

import pytest

from app.data_dir import DataDirError, announce, holder_of, open_data_dir


def test_the_runner_id_is_the_same_at_every_start(tmp_path):
    folder = tmp_path / "new" / "data"
    with open_data_dir(folder) as first:
        pass
    with open_data_dir(folder) as second:
        pass

    assert first == second
    assert len(first) == 16


def test_two_folders_have_two_runner_ids(tmp_path):
    with open_data_dir(tmp_path / "a") as one, open_data_dir(tmp_path / "b") as other:
        assert one != other


def test_a_second_server_in_the_folder_is_refused_and_the_first_goes_on(tmp_path):
    with (
        open_data_dir(tmp_path) as first,
        pytest.raises(DataDirError, match="another server"),
        open_data_dir(tmp_path),
    ):
        pass
    with open_data_dir(tmp_path) as again:
        assert again == first


def test_who_has_the_folder_is_named_with_its_address_once_it_is_known(tmp_path):
    assert holder_of(tmp_path) is None
    with open_data_dir(tmp_path):
        assert holder_of(tmp_path) == f"another server (process {os.getpid()})"
        announce(tmp_path, "http://127.0.0.1:8000")
        name = rf"\(process {os.getpid()}, http://127\.0\.0\.1:8000\) uses the data folder"
        with pytest.raises(DataDirError, match=name), open_data_dir(tmp_path):
            pass
    assert holder_of(tmp_path) is None


def test_what_a_killed_server_left_holds_nothing(tmp_path):
    announce(tmp_path)
    (tmp_path / ".lock").touch()

    assert holder_of(tmp_path) is None
    (tmp_path / "holder").write_text("no number\n")
    with open_data_dir(tmp_path):
        (tmp_path / "holder").unlink()
        assert holder_of(tmp_path) == "another server"


def test_a_question_for_the_holder_refuses_no_start(tmp_path):
    (tmp_path / ".lock").touch()
    with (tmp_path / ".lock").open("rb") as asked:
        fcntl.flock(asked, fcntl.LOCK_SH)
        answered = Timer(0.1, lambda: fcntl.flock(asked, fcntl.LOCK_UN))
        answered.start()
        with open_data_dir(tmp_path) as runner_id:
            assert runner_id
        answered.join()


def test_an_empty_runner_id_is_made_anew(tmp_path):
    (tmp_path / "runner-id").write_text("\n")
    with open_data_dir(tmp_path) as made:
        assert made
    assert (tmp_path / "runner-id").read_text().strip() == made


def test_a_folder_that_cannot_be_is_refused_with_the_reason(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(DataDirError, match=os.strerror(20)),
        open_data_dir(tmp_path / "file" / "data"),
    ):
        pass
