"""A session as openai-agents keeps conversations: for `Runner.run(…, session=…)`.

It has the members of that package's `Session` protocol, which asks for nothing else; the package
itself is not imported.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from splice.async_session import AsyncSession


class AgentsSession:
    """What an agent was told and has said, kept by the server, whichever model the agent asks.

    Items come back as the server has them, with its ids. `session_settings` are openai-agents' own:
    their `limit` says how many of the newest items an agent is shown.
    """

    def __init__(self, session: "AsyncSession") -> None:
        self._session = session
        self.session_id = session.id
        self.session_settings: Any = None

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The newest `limit` items, or all, oldest first."""
        if limit is None:
            limit = _limit_of(self.session_settings)
        return [dict(item.raw) for item in await self._session.history(limit=limit)]

    async def add_items(self, items: list[Any]) -> None:
        """Put items behind what is there."""
        await self._session.add(items)

    async def pop_item(self) -> Any | None:  # noqa: ANN401 (the protocol's own item)
        """Take the newest item out; None where there is none."""
        newest = await self._session.history(limit=1)
        if not newest:
            return None
        await self._session.remove(newest[0])
        return dict(newest[0].raw)

    async def clear_session(self) -> None:
        """Begin anew in the same session; what was said stays in its tree."""
        await self._session.move_head(None)


def _limit_of(settings: object) -> int | None:
    said = settings.get("limit") if isinstance(settings, Mapping) else None
    limit = said if said is not None else getattr(settings, "limit", None)
    return limit if isinstance(limit, int) else None
