"""Any order of calls on a disk tier against a dictionary, with the files looked at after each."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from model.tiers.base import RecordLostError, TierFullError
from model.tiers.cipher import Cipher
from model.tiers.disk import DiskStorage
from tests.support.tier_records import (
    BLOCK_BYTES,
    IDENTITY,
    file_bytes,
    is_anywhere,
    key,
    payload,
    record,
)

SETS = st.sets(st.integers(0, 14), max_size=5)


class DiskMachine(RuleBasedStateMachine):
    """The quota has room for ten records, so that compaction is what most writes need."""

    cipher: Cipher | None = None

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        one = self.new_storage(0).record_bytes()
        self.quota = 13 * one
        self.storage = self.new_storage(self.quota)
        self.storage.open()
        self.there: set[int] = set()
        self.erased: set[int] = set()

    def new_storage(self, quota):
        storage = DiskStorage(self.folder, IDENTITY, quota, cipher=self.cipher)
        segment_bytes = 3 * storage.record_bytes()
        return DiskStorage(self.folder, IDENTITY, quota, segment_bytes, self.cipher)

    @rule(numbers=st.permutations(range(15)), count=st.integers(1, 15))
    def write(self, numbers, count):
        for number in numbers[:count]:
            self.write_one(number)

    def write_one(self, number):
        try:
            self.storage.write(record(number), payload(number))
        except TierFullError:
            assert len(self.there) >= 10, "what is dead was in the way"
        else:
            self.there.add(number)
            self.erased.discard(number)

    @rule()
    def read(self):
        for number in range(15):
            self.read_one(number)

    def read_one(self, number):
        into = memoryview(bytearray(BLOCK_BYTES))
        try:
            self.storage.read(record(number), into)
        except RecordLostError:
            assert number not in self.there
        else:
            assert number in self.there
            assert into == payload(number)

    @rule(numbers=SETS)
    def remove(self, numbers):
        self.storage.remove([key(n) for n in numbers])
        self.there -= numbers

    @rule(numbers=SETS)
    def erase(self, numbers):
        self.storage.erase([key(n) for n in numbers])
        self.there -= numbers
        self.erased |= numbers

    @rule()
    def verify(self):
        assert list(self.storage.verify()) == [None] * len(self.there)

    @rule(is_clean=st.booleans())
    def reopen(self, is_clean):
        """As after SIGTERM, or after kill -9: what isn't closed has only its lock let go."""
        if is_clean:
            self.storage.close()
        else:
            self.storage._let_go()
        self.storage = self.new_storage(self.quota)
        found = self.storage.open()
        assert len(found) == len(self.there)
        assert {r.position for r in found} == self.there

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def damage(self, data):
        """Flip a bit of a record somewhere; whatever is lost by it is lost alone."""
        number = data.draw(st.sampled_from(sorted(self.there)))
        place = self.storage._log.find(key(number))
        offset = data.draw(st.integers(1, self.storage.record_bytes() - 1))
        with (self.storage.path / f"{place.segment.number:08d}.kv").open("r+b") as file:
            file.seek(place.segment.offset(place.slot) + offset)
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 1]))
        assert [r for r in self.storage.verify() if r is not None] == [record(number)]
        self.there.remove(number)

    @invariant()
    def the_files_are_within_the_quota(self):
        assert file_bytes(self.folder) == self.storage.used_bytes <= self.quota
        assert self.storage.live_bytes == len(self.there) * self.storage.record_bytes()

    @invariant()
    def what_is_gone_is_in_no_file(self):
        for number in self.erased:
            assert not is_anywhere(self.folder, key(number))
        for number in set(range(15)) - self.there:
            assert not is_anywhere(self.folder, payload(number)[100:132])

    def teardown(self):
        for number in self.there:
            self.read_one(number)
        self.storage.close()
        shutil.rmtree(self.folder)


class SealedDiskMachine(DiskMachine):
    cipher = Cipher(bytes(range(32)))


FEW = settings(max_examples=25, stateful_step_count=40, deadline=None)
TestDisk = DiskMachine.TestCase
TestDisk.settings = FEW
TestSealedDisk = SealedDiskMachine.TestCase
TestSealedDisk.settings = FEW
