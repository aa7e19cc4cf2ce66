"""Digests of files, remembered."""

import hashlib
import io
import os

from model.digests import copy_and_digest, file_sha256


def digest(path, book):
    return file_sha256(path, book, lambda _: None)


def test_the_digest_is_the_files_sha256(tmp_path):
    file = tmp_path / "f"
    file.write_bytes(b"abc")

    assert digest(file, tmp_path) == hashlib.sha256(b"abc").hexdigest()


def test_a_changed_file_is_read_again(tmp_path):
    file = tmp_path / "f"
    file.write_bytes(b"abc")
    first = digest(file, tmp_path)
    file.write_bytes(b"abd")
    os.utime(file, ns=(1, 1))

    assert digest(file, tmp_path) != first


def test_an_unchanged_file_is_not_read_again(tmp_path):
    file = tmp_path / "f"
    file.write_bytes(b"abc")
    os.utime(file, ns=(1, 1))
    first = digest(file, tmp_path)
    # The same size, inode and time, which no honest writer would leave: only the book is asked.
    file.write_bytes(b"xyz")
    os.utime(file, ns=(1, 1))

    assert digest(file, tmp_path) == first


def test_a_damaged_book_is_only_a_cache_that_is_gone(tmp_path):
    (tmp_path / "digests.json").write_text("{broken")
    file = tmp_path / "f"
    file.write_bytes(b"abc")

    assert digest(file, tmp_path) == hashlib.sha256(b"abc").hexdigest()


def test_a_book_that_cannot_be_written_does_no_harm(tmp_path):
    file = tmp_path / "f"
    file.write_bytes(b"abc")

    assert digest(file, tmp_path / "nowhere") == hashlib.sha256(b"abc").hexdigest()


def test_copying_gives_the_digest_of_what_was_copied(tmp_path):
    data = bytes(range(256)) * 9000

    copied = copy_and_digest(io.BytesIO(data), tmp_path / "copy")

    assert copied == hashlib.sha256(data).hexdigest()
    assert (tmp_path / "copy").read_bytes() == data
