"""Work that goes on as long as something is open."""

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import Self


class Background(ABC):
    """An async context manager: while it is open, `_run` runs; it is cancelled at the end. What
    `_run` raises before comes out there."""

    _task: asyncio.Task[None] | None = None

    @abstractmethod
    async def _run(self) -> None:
        """The work; it need not end by itself."""

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
