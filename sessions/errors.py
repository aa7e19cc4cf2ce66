"""What can go wrong with sessions and turns.

    SessionsError                    code                    retryable
    ├ NotFoundError                  not_found               no
    │ ├ SessionNotFoundError         session_not_found       no
    │ ├ TurnNotFoundError            turn_not_found          no
    │ ├ ItemNotFoundError            item_not_found          no
    │ └ KeyNotFoundError             key_not_found           no
    ├ ConflictError                  conflict                no
    │ ├ SessionBusyError             session_busy            yes   the branch has an active turn
    │ ├ RevisionConflictError        revision_conflict       yes   somebody wrote first
    │ ├ IdempotencyConflictError     idempotency_conflict    no    same client_turn_id, other input
    │ └ TurnNotEndedError            turn_not_ended          yes   a parent must have ended
    ├ InvalidInputError              invalid_request         no    `param` names the part
    │ └ UnsupportedInputError        unsupported_input       no    images, audio, hosted tools, ...
    ├ TooManyTurnsError              too_many_turns          yes   of one owner at once
    ├ UnavailableError               unavailable             yes
    │ ├ DrainingError                draining                yes
    │ └ StoreUnavailableError        store_unavailable       yes
    └ ForeignDatabaseError           foreign_database        no    not ours, or from a newer version

No class knows HTTP; `app/errors.py` maps them.
"""

from typing import ClassVar


class SessionsError(Exception):
    """Base of the family. `code` is stable; `retryable`: the same call may succeed later."""

    code: ClassVar[str] = "sessions_error"
    retryable: ClassVar[bool] = False


class NotFoundError(SessionsError):
    """There is no such thing, or it belongs to somebody else: callers can't tell which."""

    code = "not_found"


class SessionNotFoundError(NotFoundError):
    """No session of this owner has the id."""

    code = "session_not_found"


class TurnNotFoundError(NotFoundError):
    """No turn of this owner has the id."""

    code = "turn_not_found"


class ItemNotFoundError(NotFoundError):
    """No item of this owner has the id."""

    code = "item_not_found"


class KeyNotFoundError(NotFoundError):
    """No API key has the id."""

    code = "key_not_found"


class ConflictError(SessionsError):
    """The request contradicts what is stored."""

    code = "conflict"


class SessionBusyError(ConflictError):
    """The branch already has an active turn."""

    code = "session_busy"
    retryable = True


class RevisionConflictError(ConflictError):
    """The session changed since the caller read it."""

    code = "revision_conflict"
    retryable = True


class IdempotencyConflictError(ConflictError):
    """The `client_turn_id` or `Idempotency-Key` was used before with another request."""

    code = "idempotency_conflict"


class TurnNotEndedError(ConflictError):
    """The turn is still active, so nothing can follow it yet."""

    code = "turn_not_ended"
    retryable = True


class InvalidInputError(SessionsError):
    """The request is at fault; `param` names the part."""

    code = "invalid_request"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class UnsupportedInputError(InvalidInputError):
    """A kind of input that this server does not take."""

    code = "unsupported_input"


class TooManyTurnsError(SessionsError):
    """The owner has as many replies in the making as one may have."""

    code = "too_many_turns"
    retryable = True


class UnavailableError(SessionsError):
    """Not now."""

    code = "unavailable"
    retryable = True


class DrainingError(UnavailableError):
    """The server is stopping and takes no new turns."""

    code = "draining"


class StoreUnavailableError(UnavailableError):
    """The database can't be read or written."""

    code = "store_unavailable"


class ForeignDatabaseError(SessionsError):
    """The database is not this program's, or was written by a newer version."""

    code = "foreign_database"
