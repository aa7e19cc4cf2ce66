"""What can go wrong between a program and the server.

SpliceError
├ ConnectionLostError      no answer, or a stream that could not be resumed
└ APIStatusError           the server's refusal: status, code, param, request_id
  ├ BadRequestError        400, 413, 422
  ├ AuthenticationError    401: no key, or a wrong one
  ├ PermissionDeniedError  403: the key is not for this
  ├ NotFoundError          404
  ├ ConflictError          409
  ├ OverloadedError        429: too many turns wait, or too much is asked
  └ ServerError            500 and above
    └ UnavailableError     502, 503, 504: starting, stopping, or away for a moment
"""


class SpliceError(Exception):
    """Base of the family."""


class ConnectionLostError(SpliceError):
    """The server can't be reached, or went away and did not come back in time."""


class APIStatusError(SpliceError):
    """The server refused. `code` is stable; `retryable` is the server's own word, if it gave one.

    `retry_after_s` is None where the server named no time; `request_id` finds the entry in its log.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str | None = None,
        param: str | None = None,
        request_id: str | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.param = param
        self.request_id = request_id
        self.retryable = retryable
        self.retry_after_s: float | None = None


class BadRequestError(APIStatusError):
    """The request is at fault; `param` names the part, if one part is."""


class AuthenticationError(APIStatusError):
    """The server needs a key, and this is none of its own."""


class PermissionDeniedError(APIStatusError):
    """The key is good, but not for this; or the server is not known by that name."""


class NotFoundError(APIStatusError):
    """There is no such session, turn or item."""


class ConflictError(APIStatusError):
    """The request contradicts what is stored: a busy session, a reused `client_turn_id`, …"""


class OverloadedError(APIStatusError):
    """Too many turns wait already, or this owner asks too often."""


class ServerError(APIStatusError):
    """The server is broken."""


class UnavailableError(ServerError):
    """The server is starting, stopping, or can't reach what it needs: later it will do."""


def error_class(status: int) -> type[APIStatusError]:
    """The class for a status; the base for a status that has none of its own."""
    by_status: dict[int, type[APIStatusError]] = {
        400: BadRequestError,
        401: AuthenticationError,
        403: PermissionDeniedError,
        404: NotFoundError,
        409: ConflictError,
        413: BadRequestError,
        422: BadRequestError,
        429: OverloadedError,
        502: UnavailableError,
        503: UnavailableError,
        504: UnavailableError,
    }
    usual = ServerError if status >= 500 else APIStatusError
    return by_status.get(status, usual)
