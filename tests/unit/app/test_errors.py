"""Every error has a status, a code and honest advice about trying again."""

import logging

import pytest
from aiohttp import web

import model.errors
import sessions.errors
from app.errors import PeerGoneError, RequestError, boundary, describe, has_row


def _family(base: type[Exception]) -> list[type[Exception]]:
    return [base, *(kind for child in base.__subclasses__() for kind in _family(child))]


FAMILIES = [*_family(sessions.errors.SessionsError), *_family(model.errors.ModelError)]
SPECIAL = {
    model.errors.ContextLengthError: model.errors.ContextLengthError(900, 512),
    model.errors.OutOfBlocksError: model.errors.OutOfBlocksError(3, 2),
}


@pytest.mark.parametrize("kind", FAMILIES, ids=lambda kind: kind.__name__)
def test_each_class_of_both_families_has_a_row_of_its_own(kind):
    assert has_row(kind)


@pytest.mark.parametrize("kind", FAMILIES, ids=lambda kind: kind.__name__)
def test_what_may_be_retried_says_so_and_when(kind):
    exc = SPECIAL.get(kind) or kind("something happened")
    error = describe(exc, "req_1")
    headers = error.headers()

    is_shown = error.code != "internal"
    assert (headers["x-should-retry"] == "true") is (kind.retryable and is_shown)
    assert ("Retry-After" in headers) is (kind.retryable and is_shown)


@pytest.mark.parametrize(
    ("exc", "status", "code"),
    [
        (sessions.errors.SessionNotFoundError("x"), 404, "session_not_found"),
        (sessions.errors.SessionBusyError("x"), 409, "session_busy"),
        (sessions.errors.IdempotencyConflictError("x"), 409, "idempotency_conflict"),
        (sessions.errors.UnsupportedInputError("x", param="input"), 400, "unsupported_input"),
        (sessions.errors.DrainingError("x"), 503, "draining"),
        (model.errors.ContextLengthError(900, 512), 400, "context_length_exceeded"),
        (model.errors.EngineBusyError("x"), 429, "engine_busy"),
        (model.errors.EngineDiedError("x"), 503, "engine_died"),
        (model.errors.RepeatedCrashError("x"), 500, "repeated_crash"),
        (RequestError("upgrade_required", "x"), 426, "upgrade_required"),
    ],
)
def test_an_error_has_its_status_and_code(exc, status, code):
    error = describe(exc)

    assert (error.status, error.code) == (status, code)


def test_a_subclass_without_a_row_gets_its_parents_answer():
    class StrangeConflictError(sessions.errors.ConflictError):
        code = "strange"

    error = describe(StrangeConflictError("x"))

    assert (error.status, error.code) == (409, "strange")


def test_the_part_at_fault_is_named():
    assert describe(sessions.errors.InvalidInputError("x", param="input[2]")).param == "input[2]"


def test_a_full_context_says_by_how_many_tokens():
    assert "389 too many" in describe(model.errors.ContextLengthError(900, 512)).message


def test_a_bug_shows_only_an_id_and_is_logged_once(caplog):
    with caplog.at_level(logging.WARNING), boundary("req_7") as caught:
        raise KeyError("a secret")

    assert caught.error is not None
    assert (caught.error.status, caught.error.code) == (500, "internal")
    assert "req_7" in caught.error.message
    assert "secret" not in caught.error.message
    assert [record.request_id for record in caplog.records] == ["req_7"]


def test_a_server_side_error_of_the_families_tells_nothing_of_its_insides():
    error = describe(sessions.errors.ForeignDatabaseError("/home/me/secret.db"), "req_1")

    assert error.code == "internal"
    assert "secret" not in error.message


def test_a_lost_client_passes_the_boundary():
    with pytest.raises(PeerGoneError), boundary("req_1"):
        raise PeerGoneError


def test_aiohttps_refusals_take_openais_shape():
    error = describe(web.HTTPMethodNotAllowed("PUT", ["POST", "GET"]))

    assert error.error() == {
        "message": "PUT is not allowed here; allowed: GET, POST",
        "type": "invalid_request_error",
        "param": None,
        "code": "method_not_allowed",
    }
