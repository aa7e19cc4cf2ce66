"""One tier as the engine's thread sees it: what is there, what is on its way, what goes for room.

Invariants:
    what is being written lies on something that stays until it is there
    a medium that fails is left alone for a while, and the tier is a cache with misses meanwhile
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from model.eviction import Score
from model.messages import TierName, TierStats
from model.prefix_index import BlockHash
from model.tiers.base import Hold, Holds, Record, RecordLostError, Storage, TierError, TierFullError
from model.tiers.jobs import Chore, Errand, Item, Job, JobRunner, Transfer, Urgency
from model.tiers.tree import Cut, RecordTree, Worth

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 5.0
_MAX_PAUSE_S = 600.0
_EVICTION_SHARE = 50
"""At least a fiftieth of the room is made at once, for each time all leaves are looked at."""


@dataclass(slots=True)
class _Flight:
    """A spill on its way. Without a hold its conversation is gone, and what it wrote goes too."""

    hold: Hold | None
    superseded: str | None
    pinned: BlockHash | None


class Tier:
    """Bookkeeping and orders for one storage."""

    def __init__(
        self,
        runner: JobRunner,
        holds: Holds,
        *,
        max_records: int,
        block_size: int,
        worth: Worth,
        clock: Callable[[], float],
    ) -> None:
        self.name: TierName = runner.storage.name
        self.tree = RecordTree()
        self.max_records = max_records
        self._block_size = block_size
        self._runner = runner
        self._holds = holds
        self._orders: list[Job] = []
        self._worth = worth
        self._clock = clock
        self._spills: dict[Transfer, _Flight] = {}
        self._num_restores = 0
        self._abandoned: set[Transfer] = set()
        self._pins: Counter[BlockHash] = Counter()  # of what another tier is copying from here
        self._unerased: set[BlockHash] = set()  # of what is gone
        self._off_until_s = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self._counts: Counter[str] = Counter()

    @property
    def storage(self) -> Storage:
        """The medium; only jobs may touch it."""
        return self._runner.storage

    @property
    def has_orders(self) -> bool:
        """Whether `launch` would do anything."""
        return bool(self._orders)

    def launch(self) -> None:
        """Let the medium's thread begin with what was ordered. Whatever was to be done to blocks
        before must have been done."""
        orders, self._orders = self._orders, []
        for job in orders:
            self._runner.start(job)

    @property
    def owes_erasure(self) -> bool:
        """Whether the medium still has something that it failed to erase."""
        return bool(self._unerased)

    @property
    def num_in_flight(self) -> int:
        """Transfers that are ordered or under way."""
        return len(self._spills) + self._num_restores

    @property
    def num_spills(self) -> int:
        """Those of them that store."""
        return len(self._spills)

    @property
    def is_on(self) -> bool:
        """Whether the medium is asked at all: not for a while after it failed, and not as long as
        it owes an answer."""
        return not self._abandoned and self._clock() >= self._off_until_s

    def rebuild(self, records: Sequence[Record], holds: Sequence[Hold]) -> None:
        """Begin with what an earlier process left; what nobody holds goes."""
        orphans = self.tree.rebuild(records)
        for hold in holds:
            if self.tree.hold(hold) is None:
                self._note(partial(_drop, (hold.conversation_id, hold.turn_id)))
        # The rest of a conversation may be among them that was erased as far as it went.
        self._erase([*orphans, *self.tree.prune_unheld()])
        # A quota that was lowered holds for what is there, too.
        if (over := len(self.tree) - self.max_records) > 0:
            self._take_out(self.tree.evict(over, self._worth))

    # Spill

    def missing(self, chain: Sequence[Record]) -> Sequence[Record]:
        """Which of a chain's records, head first, aren't here or on their way."""
        coming = self._coming()
        for i, record in enumerate(chain):
            if record.key not in self.tree and record.key not in coming:
                return chain[i:]
        return ()

    def _coming(self) -> set[BlockHash]:
        return {item.record.key for t in self._spills for item in t.items}

    def spill(
        self,
        items: Sequence[Item],
        hold: Hold,
        *,
        superseded: str | None = None,
        source: Storage | None = None,
    ) -> Transfer | None:
        """Store a chain's missing records, and claim the chain for a conversation afterwards; the
        transfer that does it, None if there is nothing to move or no room to be made.

        `superseded` is the turn of the same conversation whose claim this one covers.
        """
        pinned = items[0].record.parent if items else None
        flight = _Flight(hold, superseded, pinned)
        if not items:
            self._take_hold(flight)
            return None
        worth = self._worth(items[0].record, hold)
        room = self._make_room(len(items), {pinned} if pinned else set(), worth)
        if room <= 0:
            return None
        transfer = Transfer(self.name, Urgency.SPILL, tuple(items[:room]), source)
        self._spills[transfer] = flight
        self._orders.append(transfer)
        return transfer

    def _make_room(self, num_records: int, pinned: set[BlockHash], worth: Score) -> int:
        """How many records of that worth may be written now, `num_records` at the most. What is
        worth more stays, so that two that don't fit together don't drive each other out."""
        coming = sum(len(t.items) for t in self._spills)
        lacking = len(self.tree) + coming + num_records - self.max_records
        if lacking > 0:
            pinned |= {f.pinned for f in self._spills.values() if f.pinned} | self._pins.keys()
            wanted = max(lacking, self.max_records // _EVICTION_SHARE)
            cut = self.tree.evict(wanted, self._worth, pinned, below=worth)
            self._counts["evicted"] += len(cut.records)
            self._take_out(cut)
            lacking -= len(cut.records)
        return num_records - max(0, lacking)

    def _spilled(self, transfer: Transfer, flight: _Flight) -> None:
        written = [item.record for item in transfer.items[: transfer.num_done]]
        if flight.hold is None:
            self._erase([record for record in written if record.key not in self.tree])
            return
        orphans = [record for record in written if not self.tree.add(record)]
        self._remove(orphans)
        self._counts["spilled"] += len(written) - len(orphans)
        if written and (last := written[-1]).key != flight.hold.tail:
            num_tokens = last.position * self._block_size + last.num_tokens
            flight.hold = replace(flight.hold, tail=last.key, num_tokens=num_tokens)
        self._take_hold(flight)

    def _take_hold(self, flight: _Flight) -> None:
        hold, superseded = flight.hold, flight.superseded
        assert hold is not None, "nobody's hold"
        if self.tree.hold(hold) is None:
            return
        self._note_holds([hold])
        if superseded is not None and superseded != hold.turn_id:
            old = self.tree.supersede(hold.conversation_id, superseded)
            self._note_holds([old] if old else [])

    def pin(self, records: Sequence[Record]) -> None:
        """Give none of these up for room before `unpin`: somebody copies from here."""
        self._pins.update(record.key for record in records)

    def unpin(self, records: Sequence[Record]) -> None:
        """The copy is over."""
        self._pins.subtract(record.key for record in records)
        self._pins = +self._pins

    # Restore

    def restore(self, items: Sequence[Item]) -> Transfer:
        """Bring records to the device."""
        transfer = Transfer(self.name, Urgency.RESTORE, tuple(items))
        self._num_restores += 1
        self._orders.append(transfer)
        return transfer

    def abandon(self, transfer: Transfer) -> tuple[int, frozenset[int]]:
        """Nobody waits for a transfer any more: how many items are through, and the blocks that the
        thread may still touch. The tier is off until it has come back."""
        self._abandoned.add(transfer)
        self._counts["abandoned"] += 1
        logger.warning("the %s tier takes too long and is left alone until it answers", self.name)
        return transfer.abandon()

    def settle(self) -> list[Transfer]:
        """Take note of the transfers that are over."""
        done: list[Transfer] = []
        for job in self._runner.take_done():
            if isinstance(job, Errand):
                self._errand_done(job)
                continue
            done.append(job)
            self._abandoned.discard(job)
            if job.source is None or not isinstance(job.error, RecordLostError):
                self._note_error(job.error)  # what a source has lost is that tier's
            if job.urgency is Urgency.SPILL:
                self._spilled(job, self._spills.pop(job))
            else:
                self._restored(job)
        self._erase_again()
        return done

    def _errand_done(self, errand: Errand) -> None:
        self._note_error(errand.error)
        if errand.error is None and errand.on_done is not None:
            errand.on_done(errand.result)
        if errand.error is not None and errand.on_failed is not None:
            errand.on_failed()

    def _restored(self, transfer: Transfer) -> None:
        self._num_restores -= 1
        self._counts["restored"] += transfer.num_done
        if isinstance(transfer.error, RecordLostError):
            self.lose(transfer.items[transfer.num_done].record)

    def _note_error(self, error: TierError | None) -> None:
        if error is None:
            self._pause_s = _FIRST_PAUSE_S
            return
        self._counts["errors"] += 1
        if isinstance(error, RecordLostError):
            logger.warning("the %s tier lost a record: %s", self.name, error)
            return
        self._off_until_s = self._clock() + self._pause_s
        kind = "is full" if isinstance(error, TierFullError) else "doesn't work"
        logger.warning(
            "the %s tier %s and is off for %.0f s: %s", self.name, kind, self._pause_s, error
        )
        self._pause_s = min(_MAX_PAUSE_S, 2 * self._pause_s)

    # Removal

    def release(self, conversation_id: str) -> int:
        """Erase what only this conversation has here; how many records that are."""
        for flight in self._spills.values():
            if flight.hold is not None and flight.hold.conversation_id == conversation_id:
                flight.hold = None
        gone = self.tree.release(conversation_id)
        self._erase(gone)
        self._note(lambda holds: holds.drop(conversation_id))
        return len(gone)

    def verify(self, on_done: Callable[[int], None]) -> None:
        """Read everything, which takes as long as it takes, and drop what is damaged; `on_done` is
        told how many records that were, before the medium failed if it did."""

        def drop(damaged: Sequence[object], *, is_all: bool) -> None:
            for record in damaged:
                assert isinstance(record, Record)
                self.lose(record)
            on_done(len(damaged))

        self.run(lambda storage: storage.verify(), drop)

    def run(
        self,
        action: Callable[[Storage], Iterator[object]],
        on_end: Callable[..., None] | None = None,
    ) -> None:
        """Have something done on the medium's thread step by step, letting what is urgent in
        between; `on_end` gets what the steps gave but for None, and `is_all`: whether none failed.
        """

        def end(*, is_all: bool) -> None:
            assert isinstance(chore.result, list | None)
            if on_end is not None:
                on_end(chore.result or [], is_all=is_all)

        chore = Chore(self.name, Urgency.SPILL, action)
        chore.on_done = lambda _: end(is_all=True)
        chore.on_failed = partial(end, is_all=False)
        self._orders.append(chore)

    def lose(self, record: Record) -> None:
        """A record isn't what was written: it goes, and what lies behind it."""
        self._counts["lost"] += 1
        self._take_out(self.tree.discard(record.key))

    def _take_out(self, cut: Cut) -> None:
        """Let medium and list follow the tree."""
        self._remove(cut.records)
        self._note_holds(cut.moved)
        for turn in cut.ended:
            self._note(partial(_drop, turn))

    def _note_holds(self, holds: Sequence[Hold]) -> None:
        for hold in holds:
            self._note(partial(_put, hold))

    def _note(self, change: Callable[[Holds], None]) -> None:
        """All such changes have one urgency, so that they are made in their order."""
        self._errand(lambda storage: change(self._holds), Urgency.SPILL)

    def _remove(self, records: Sequence[Record]) -> None:
        keys = [record.key for record in records]
        if keys:
            # What could not be removed can still be told apart as long as its key is known.
            failed = partial(self._unerased.update, keys)
            self._errand(lambda storage: storage.remove(keys), Urgency.SPILL, on_failed=failed)

    def _erase(self, records: Sequence[Record]) -> None:
        self._erase_keys([record.key for record in records])

    def _erase_keys(self, keys: Sequence[BlockHash]) -> None:
        if keys:
            failed = partial(self._unerased.update, keys)
            self._errand(lambda storage: storage.erase(keys), Urgency.ERASE, on_failed=failed)

    def _erase_again(self) -> None:
        """What the medium failed to erase, but for what was stored again by somebody else."""
        if self._unerased and self.is_on:
            self._unerased -= {key for key in self._unerased if key in self.tree}
            doomed = self._unerased - self._coming()
            self._unerased -= doomed
            self._erase_keys(list(doomed))

    def _errand(
        self,
        action: Callable[[Storage], object],
        urgency: Urgency,
        on_done: Callable[[object], None] | None = None,
        on_failed: Callable[[], None] | None = None,
    ) -> None:
        self._orders.append(Errand(self.name, urgency, action, on_done, on_failed))

    # Views

    def stats(self) -> TierStats:
        """A snapshot."""
        return TierStats(
            name=self.name,
            is_on=self.is_on,
            num_blocks=len(self.tree),
            max_blocks=self.max_records,
            used_bytes=self.storage.used_bytes,
            quota_bytes=self.storage.quota_bytes,
            num_conversations=len(self.tree.conversations()),
            counts=tuple(sorted(self._counts.items())),
        )

    def close(self, timeout_s: float) -> bool:
        """Carry out what is queued and close the medium; whether it was done in time."""
        self._note(lambda holds: holds.close())
        self.launch()
        return self._runner.close(timeout_s)

    def check(self) -> None:
        """The books; AssertionError if they are off."""
        self.tree.check()
        assert len(self.tree) <= self.max_records, f"{len(self.tree)} records"


def _drop(turn: tuple[str, str], holds: Holds) -> None:
    holds.drop_turn(*turn)


def _put(hold: Hold, holds: Holds) -> None:
    holds.put(hold)
