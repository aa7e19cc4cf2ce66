"""A reply's reasoning told from its answer while it grows. Pure; see `sessions.reasoning`.

Line ends around both are left out. Invariant: a piece, once told, is never taken back.
"""

from sessions.reasoning import ReasoningTags


class ReasoningSplitter:
    """Of one reply; `is_open`: the prompt ended with the opening tag."""

    def __init__(self, tags: ReasoningTags, *, is_open: bool) -> None:
        self._tags = tags
        self._is_decided = is_open
        self.is_inside = is_open
        self._held = ""
        self._is_at_start = True  # of the reasoning, or the answer: line ends are left out

    def feed(self, text: str) -> tuple[str, str]:
        """Read on; what is reasoning and what is answer of it and of what was held back."""
        self._held += text
        if not self._is_decided and not self._decide():
            return "", ""
        if not self.is_inside:
            return "", self._answer()
        before, closing, after = self._held.partition(self._tags.close)
        if not closing:
            return self._reasoning(self._num_pending(self._held)), ""
        self._held = before
        reasoning = self._lead(before.rstrip("\n"))
        self.is_inside, self._held, self._is_at_start = False, after, True
        return reasoning, self._answer()

    def finish(self) -> tuple[str, str]:
        """No more comes."""
        held, self._held = self._held, ""
        if self.is_inside and self._is_decided:
            return self._lead(held.rstrip("\n")), ""
        return "", held

    def _decide(self) -> bool:
        """Whether it is known by now if the reply begins with the tag."""
        start = self._held.lstrip()
        if start.startswith(self._tags.open):
            self._held = start[len(self._tags.open) :]
            self.is_inside = True
        elif self._tags.open.startswith(start):
            return False
        else:
            self._is_at_start = False  # an answer's own line ends stay
        self._is_decided = True
        return True

    def _reasoning(self, num_pending: int) -> str:
        ready = self._held[: len(self._held) - num_pending].rstrip("\n")
        self._held = self._held[len(ready) :]
        return self._lead(ready)

    def _answer(self) -> str:
        ready, self._held = self._held, ""
        return self._lead(ready)

    def _lead(self, text: str) -> str:
        if self._is_at_start:
            text = text.lstrip("\n")
            self._is_at_start = not text
        return text

    def _num_pending(self, text: str) -> int:
        """Characters at the end that may be the beginning of the closing tag."""
        close = self._tags.close
        sizes = range(min(len(text), len(close) - 1), 0, -1)
        return next((size for size in sizes if close.startswith(text[-size:])), 0)
