"""A clock that moves only when told to."""

from datetime import UTC, datetime, timedelta


class FakeClock:
    """Called, it says the time; every look takes `tick_s`, so that ids and orders differ."""

    def __init__(self, *, tick_s: float = 0.001) -> None:
        self.now = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
        self._tick = timedelta(seconds=tick_s)

    def __call__(self) -> datetime:
        self.now += self._tick
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
