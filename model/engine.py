"""The engine seen from the event loop: start, supervise, stream."""

from collections.abc import AsyncIterator, Callable
from enum import StrEnum

from model.config import EngineConfig
from model.messages import (
    EngineInfo,
    EngineStats,
    GenerationEvent,
    GenerationRequest,
    TableView,
)


class EngineState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    CLOSED = "closed"


class Engine:
    def __init__(
        self, config: EngineConfig, *, on_progress: Callable[[str], None] | None = None
    ) -> None: ...

    @property
    def state(self) -> EngineState: ...

    @property
    def info(self) -> EngineInfo:
        """What was loaded; raises EngineUnavailableError before the first `READY`."""
        ...

    async def start(self) -> EngineInfo:
        """Start the process and wait until it is ready. Raises ModelLoadError."""
        ...

    async def close(self) -> None: ...

    def generate(self, request: GenerationRequest) -> AsyncIterator[GenerationEvent]:
        """Stream one generation. Raises ModelError; leaving the iterator early (aclose) cancels it."""
        ...

    async def cancel(self, request_id: str) -> None:
        """End a generation at the next step, as `CANCELLED` with what it has; unknown ids are ignored."""
        ...

    async def release(self, conversation_id: str) -> None:
        """Forget a conversation: its parked tables and its record."""
        ...

    async def evict(self, conversation_id: str | None = None) -> int:
        """Drop a conversation's parked blocks and cached contents (None: everything that is not
        running); the number of blocks dropped. The next turn recomputes."""
        ...

    async def tables(self, conversation_id: str) -> tuple[TableView, ...]: ...

    async def stats(self) -> EngineStats: ...
