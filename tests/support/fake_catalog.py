"""A catalog of sessions without a store, as far as probes ask for it."""

import asyncio


class FakeCatalog:
    """A store that can be read, until `raises` is set or `is_stuck`."""

    def __init__(self) -> None:
        self.raises: Exception | None = None
        self.is_stuck = False

    async def check_store(self) -> None:
        if self.is_stuck:
            await asyncio.Event().wait()
        if self.raises is not None:
            raise self.raises


class FakeEphemeral:
    """Keeps nothing."""

    def kept(self, owner, turn_id) -> None:
        return None
