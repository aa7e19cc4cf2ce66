"""What is taken for a server's address, and how it is said that nobody is there."""

import socket

import pytest

from app.refusals import RefusalError
from app.server_address import reason_of, server_url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://h:1/v1/", "http://h:1"),
        ("https://h/chat", "https://h/chat"),
        ("localhost:8000", "http://localhost:8000"),
    ],
)
def test_an_address_is_taken_as_people_write_it(text, url):
    assert server_url(text) == url


@pytest.mark.parametrize("text", ["ftp://x", "http://", "http://h:99999", "http://h:x", ""])
def test_what_can_be_no_address_is_said_so(text):
    with pytest.raises(RefusalError, match="is no address of a server: name one with --url"):
        server_url(text)


def _from(outer, inner):
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize(
    ("exc", "reason"),
    [
        (_from(ValueError("x"), ConnectionRefusedError(111, "Connect call failed")), "refused"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (_from(ValueError("x"), TimeoutError()), "it takes too long"),
        (ValueError("odd"), "odd"),
    ],
)
def test_a_reason_is_in_plain_words(exc, reason):
    assert reason in reason_of(exc)
