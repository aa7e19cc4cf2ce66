"""Any order of calls on a CPU tier against a dictionary, with the memory looked at after each."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from model.tiers.base import RecordLostError, TierFullError
from model.tiers.cpu import CpuStorage, slot_bytes
from tests.support.tier_records import BLOCK_BYTES, IDENTITY, key, payload, record

NUM_SLOTS = 6
NUMBERS = range(10)
SETS = st.sets(st.sampled_from(NUMBERS), max_size=5)


class CpuMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.memory = bytearray(NUM_SLOTS * slot_bytes(IDENTITY))
        self.storage = self.opened()
        self.there: set[int] = set()
        self.erased: set[int] = set()

    def opened(self):
        self.storage = CpuStorage(IDENTITY, len(self.memory), memoryview(self.memory))
        self.found = self.storage.open()
        return self.storage

    @rule(numbers=st.permutations(NUMBERS), count=st.integers(1, 10))
    def write(self, numbers, count):
        for number in numbers[:count]:
            try:
                self.storage.write(record(number), payload(number))
            except TierFullError:
                assert len(self.there) == NUM_SLOTS
                assert number not in self.there
            else:
                self.there.add(number)
                self.erased.discard(number)

    @rule()
    def read(self):
        for number in NUMBERS:
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

    @rule(is_clean=st.booleans())
    def reopen(self, is_clean):
        if is_clean:
            self.storage.close()
        self.opened()
        assert len(self.found) == len(self.there)
        assert {r.position for r in self.found} == self.there

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def damage(self, data):
        number = data.draw(st.sampled_from(sorted(self.there)))
        view = self.storage._payload(self.storage._slots[key(number)])
        view[data.draw(st.integers(0, BLOCK_BYTES - 1))] ^= 1
        assert [r for r in self.storage.verify() if r is not None] == [record(number)]
        self.there.remove(number)

    @invariant()
    def the_slots_add_up(self):
        assert self.storage.used_bytes == len(self.there) * self.storage.record_bytes()

    @invariant()
    def what_is_gone_is_nowhere(self):
        for number in self.erased:
            assert key(number) not in self.memory
        for number in set(NUMBERS) - self.there:
            assert payload(number)[100:132].tobytes() not in self.memory

    def teardown(self):
        self.read()
        self.storage.close()


TestCpu = CpuMachine.TestCase
TestCpu.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
