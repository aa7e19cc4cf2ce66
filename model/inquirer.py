"""What may be asked of an engine between turns, by name. The engine itself is in `engine`."""

from abc import ABC, abstractmethod
from typing import Any

from model.grammar import Grammar
from model.messages import Residency, TableView, TierName


class Inquirer(ABC):
    """Asks; each call raises EngineUnavailableError while there is nobody to answer."""

    @abstractmethod
    async def _query(
        self, name: str, argument: str | Grammar | None = None, tier: TierName | None = None
    ) -> Any:  # noqa: ANN401 (by name)
        """Put the question to the process that runs, and wait for its answer."""

    async def check_grammar(self, grammar: Grammar) -> None:
        """Return once a grammar is compiled, which the reply that must have it then finds done.

        Raises InvalidGenerationError with the grammar's `param` for one that can't be,
        EngineBusyError when too many are being compiled, EngineUnavailableError.
        """
        await self._query("grammar", grammar)

    async def evict(self, conversation_id: str | None = None) -> int:
        """Drop a conversation's cached blocks (None: all that are not running); how many."""
        return int(await self._query("evict", conversation_id))

    async def tables(self, conversation_id: str) -> tuple[TableView, ...]:
        """A conversation's block tables, parked and running."""
        tables: tuple[TableView, ...] = await self._query("tables", conversation_id)
        return tables

    async def park(self, conversation_id: str, tier: TierName) -> bool:
        """Move a conversation from the device to a tier, in a while; False if there is no such
        tier, or nothing of it on the device. Raises EngineUnavailableError."""
        return bool(await self._query("park", conversation_id, tier))

    async def stored_conversations(self) -> frozenset[str]:
        """Whoever has something in a tier. Raises EngineUnavailableError."""
        found: frozenset[str] = await self._query("conversations")
        return found

    async def residency(self) -> tuple[Residency, ...]:
        """Where each conversation's newest table is. Raises EngineUnavailableError."""
        found: tuple[Residency, ...] = await self._query("residency")
        return found

    async def verify(self) -> int:
        """Read everything that the tiers have and drop what is damaged; how many records that were.
        Takes as long as reading does. Raises EngineUnavailableError."""
        return int(await self._query("verify"))

    async def collect(self) -> int:
        """Remove what other models left behind that is old or too much; how many folders. Raises
        EngineUnavailableError."""
        return int(await self._query("collect"))
