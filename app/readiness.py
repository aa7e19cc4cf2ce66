"""Whether the server takes work, and if not, why.

`starting` until the model and its renderer are loaded; `failed` when they can't be; `draining`
once the server stops. In between the engine's own state decides.
"""

from enum import StrEnum
from typing import Any


class ServerState(StrEnum):
    """What the front end knows by itself."""

    STARTING = "starting"
    LOADED = "loaded"
    FAILED = "failed"
    DRAINING = "draining"


class Readiness:
    """One a server; written by the composition root, read by probes and handlers."""

    def __init__(self) -> None:
        self._state = ServerState.STARTING
        self._detail: str | None = None

    @property
    def is_draining(self) -> bool:
        """Whether new work is refused because the server stops."""
        return self._state is ServerState.DRAINING

    def progress(self, detail: str) -> None:
        """Note how far starting has come."""
        if self._state is ServerState.STARTING:
            self._detail = detail

    def loaded(self) -> None:
        """Everything that a reply needs is there."""
        if self._state is ServerState.STARTING:
            self._state, self._detail = ServerState.LOADED, None

    def failed(self, reason: str) -> None:
        """Starting has ended without a model."""
        if self._state is ServerState.STARTING:
            self._state, self._detail = ServerState.FAILED, reason

    def draining(self) -> None:
        """The server takes no new work from here on."""
        self._state, self._detail = ServerState.DRAINING, None

    def is_ready(self, engine_state: str) -> bool:
        """Tell whether a reply could be begun now."""
        return self._state is ServerState.LOADED and engine_state == "ready"

    def report(self, engine_state: str) -> dict[str, Any]:
        """Say it in words: `state`, and `detail` when there is more to say."""
        if self._state is ServerState.LOADED:
            return {"state": engine_state, "detail": None}
        return {"state": str(self._state), "detail": self._detail}
