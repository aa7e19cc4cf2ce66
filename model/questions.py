"""Questions to the engine's process that wait for their answers."""

import asyncio
from itertools import count
from typing import Any

from model.errors import ModelError
from model.grammar import Grammar
from model.messages import TierName
from model.process import EngineProcess
from model.wire import Failure, Query


class Questions:
    """One future a question; bounded by those who ask, each of whom waits."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._ids = count()

    async def ask(
        self,
        process: EngineProcess,
        name: str,
        argument: str | Grammar | None,
        tier: TierName | None,
    ) -> Any:  # noqa: ANN401 - what is answered goes by the name
        """Send a question and wait for its answer. Raises a failure that is answered, and what
        `fail` is given."""
        query_id = next(self._ids)
        answer = self._waiting[query_id] = asyncio.get_running_loop().create_future()
        try:
            process.send(Query(query_id, name, argument, tier))
            return await answer
        finally:
            self._waiting.pop(query_id, None)

    def answer(self, query_id: int, value: object) -> None:
        """Hand an answer to who asked, unless nobody waits any more."""
        if (answer := self._waiting.get(query_id)) and not answer.done():
            if isinstance(value, Failure):
                answer.set_exception(value.to_error())
            else:
                answer.set_result(value)

    def fail(self, error: ModelError) -> None:
        """Nobody gets an answer any more."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)
