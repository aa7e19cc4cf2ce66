"""Where sessions are, and what warming does, as handlers see it."""

from datetime import UTC, datetime

from model.messages import ClaimReport, Residency, TierName, TierStats
from sessions.types import Session, TurnId
from sessions.warming import Warmed, WarmingLedger

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
CLAIM = ClaimReport(num_prompt_tokens=120, from_device=112, computed=8)
DISK = TierStats(
    name=TierName.DISK,
    is_on=True,
    num_blocks=4,
    max_blocks=8,
    used_bytes=512,
    quota_bytes=2048,
    num_conversations=2,
    counts=(("restored", 3), ("spilled", 5)),
)
RESIDENCY = Residency(
    conversation_id="conv_1",
    turn_id="resp_1",
    tier=TierName.DISK,
    tail="ab",
    num_tokens=16,
    num_bytes=4096,
    used_at=1_796_000_000.5,
    stored_in=(TierName.DISK,),
)


class FakeResidencies:
    """Everybody is on the disk."""

    def of(self, session: Session) -> Residency:
        return RESIDENCY


class FakePresence:
    """Warms and parks whatever there is."""

    def __init__(self) -> None:
        self.residencies = FakeResidencies()
        self.ledger = WarmingLedger(lambda: NOW)
        self.calls: list[tuple] = []

    async def warm(self, owner, session_id, *, deadline_s) -> Warmed:
        self.calls.append((session_id, deadline_s))
        return Warmed(turn_id=TurnId("resp_1"), claim=CLAIM, is_whole=True, total_s=0.25)

    async def park(self, owner, session_id, tier) -> bool:
        self.calls.append((session_id, tier))
        return True
