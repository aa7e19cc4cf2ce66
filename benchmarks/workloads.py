"""What people and agents send, made of seeded words: the same for whoever is measured.

W1 to W3 are those of the performance study: one chat behind a system prompt, eight chats at once,
sixteen chats four at a time behind one long shared system prompt.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

_SYLLABLES = ("ka", "lo", "mi", "ra", "te", "su", "no", "vi", "pe", "da", "go", "ri")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """So many chats, some of them at once, each of so many turns; lengths in words and tokens.

    With `returns` chats don't take turns one after the other: who comes next is drawn by a Zipf
    law, as people come back to what they used last.
    """

    name: str
    num_chats: int
    num_at_once: int
    num_turns: int
    system_words: int
    is_system_shared: bool
    user_words: int
    reply_tokens: int = 32
    first_user_words: int | None = None
    returns: bool = False

    def system(self, chat: int, round_number: int) -> str:
        """A chat's system prompt; another one each round, so that no round finds the last's."""
        who = 0 if self.is_system_shared else chat
        return words(self.system_words, f"{self.name} system {who} {round_number}")

    def message(self, chat: int, turn: int, round_number: int) -> str:
        """What the user says."""
        num_words = self.user_words
        if turn == 0 and self.first_user_words is not None:
            num_words = self.first_user_words
        return words(num_words, f"{self.name} user {chat} {turn} {round_number}")

    @property
    def longest(self) -> int:
        """How many turns the longest chat has."""
        return 1 + max(turn for _, turn in self.order())

    def order(self) -> Iterator[tuple[int, int]]:
        """(chat, turn) in the order in which they are sent when one follows the other."""
        if not self.returns:
            yield from product(range(self.num_chats), range(self.num_turns))
            return
        draw = random.Random(self.name)
        done = [0] * self.num_chats
        weights = [1 / (rank + 1) for rank in range(self.num_chats)]
        for chat in range(self.num_chats):
            yield chat, 0
            done[chat] = 1
        for _ in range(self.num_chats * (self.num_turns - 1)):
            (chat,) = draw.choices(range(self.num_chats), weights)
            yield chat, done[chat]
            done[chat] += 1


WORKLOADS = {
    w.name: w
    for w in (
        Workload(
            name="W1", num_chats=1, num_at_once=1, num_turns=8,
            system_words=500, is_system_shared=False, user_words=40,
        ),
        Workload(
            name="W2", num_chats=8, num_at_once=8, num_turns=5,
            system_words=500, is_system_shared=False, user_words=40,
        ),
        Workload(
            name="W3", num_chats=16, num_at_once=4, num_turns=4,
            system_words=1000, is_system_shared=True, user_words=40,
        ),
        Workload(
            name="zipf", num_chats=15, num_at_once=1, num_turns=4,
            system_words=400, is_system_shared=False, user_words=20, reply_tokens=16, returns=True,
        ),
        Workload(
            name="document", num_chats=2, num_at_once=1, num_turns=5,
            system_words=50, is_system_shared=True, user_words=20, first_user_words=1800,
        ),
        Workload(
            name="agent", num_chats=2, num_at_once=2, num_turns=15,
            system_words=400, is_system_shared=True, user_words=25, reply_tokens=16,
        ),
    )
}  # fmt: skip

WARM_UP = Workload(
    name="warm-up", num_chats=1, num_at_once=1, num_turns=2,
    system_words=50, is_system_shared=False, user_words=10,
)  # fmt: skip
"""What every target gets before it is measured, so that no first call is."""


def words(num: int, seed: str) -> str:
    """So many made-up words, a sentence every dozen."""
    draw = random.Random(seed)
    made = ["".join(draw.choices(_SYLLABLES, k=draw.randint(1, 3))) for _ in range(num)]
    return " ".join(w + "." if i % 12 == 11 else w for i, w in enumerate(made))
