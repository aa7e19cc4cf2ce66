"""A conversation as tests hold it: short words for what they do all the time."""

from dataclasses import dataclass
from typing import Any

from model.config import SamplingParams
from sessions.manager import SessionManager
from sessions.types import (
    InputMessage,
    OwnerId,
    Session,
    SessionId,
    Turn,
    TurnEnded,
    TurnEvent,
    TurnId,
    TurnRequest,
)

ANN = OwnerId("ann")
BOB = OwnerId("bob")


def ask(text: str = "hello", **overrides: Any) -> TurnRequest:
    values: dict[str, Any] = {
        "input": (InputMessage(role="user", text=text),),
        "params": SamplingParams(seed=7),
    }
    return TurnRequest(**{**values, **overrides})


@dataclass
class Chat:
    """One session of one owner."""

    manager: SessionManager
    session: Session
    owner: OwnerId = ANN

    @classmethod
    async def open(cls, manager: SessionManager, owner: OwnerId = ANN, **options: Any) -> "Chat":
        return cls(manager, await manager.create(owner, **options), owner)

    @property
    def id(self) -> SessionId:
        return self.session.id

    async def submit(self, text: str = "hello", **overrides: Any) -> Turn:
        return await self.manager.submit(self.owner, self.id, ask(text, **overrides))

    async def say(self, text: str = "hello", **overrides: Any) -> Turn:
        """Submit and wait for the end."""
        return await self.end(await self.submit(text, **overrides))

    async def regenerate(self, turn: Turn, **options: Any) -> Turn:
        params = options.pop("params", SamplingParams(seed=8))
        again = await self.manager.regenerate(self.owner, turn.id, params=params, **options)
        return await self.end(again)

    async def end(self, turn: Turn) -> Turn:
        last = (await self.read(turn))[-1][1]
        assert isinstance(last, TurnEnded)
        return last.turn

    async def read(self, turn: Turn, after: int = -1) -> list[tuple[int, TurnEvent]]:
        events = self.manager.read(self.owner, turn.id, after=after)
        return [numbered async for numbered in events]

    async def kept(self, turn: Turn) -> None:
        """Return when what is shown of a running turn is durable, as far as it is to be."""
        runner = self.manager._running.get(turn.id)
        assert runner is not None
        assert runner._checkpoints is not None
        await runner._checkpoints.over()

    async def fork(self, at: TurnId | None = None, **options: Any) -> "Chat":
        forked = await self.manager.fork(self.owner, self.id, at=at, **options)
        return Chat(self.manager, forked, self.owner)

    async def turns(self, *, whole_tree: bool = False) -> tuple[Turn, ...]:
        return await self.manager.turns(self.owner, self.id, whole_tree=whole_tree)
