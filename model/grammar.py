"""What a reply must look like, as a plain value that crosses to the engine's process.

Only what can be told without a tokenizer is checked here: size and nesting, because a grammar comes
from outside and whoever compiles it recurses.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from model.errors import InvalidGenerationError

MAX_GRAMMAR_CHARS = 131_072
MAX_NESTING = 64


class GrammarKind(StrEnum):
    """What language `Grammar.text` is in; of `json_object` there is none, it is any object."""

    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """A reply's form. `param` is what its sender called it, for errors."""

    kind: GrammarKind
    text: str = ""
    param: str = "grammar"


class Constraint(Protocol):
    """Where one reply stands in its grammar."""

    @property
    def error(self) -> str | None:
        """Why it can't be followed any further, if so; then it never can be again."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether nothing can follow but an end token."""
        ...

    def mask(self) -> bytes:
        """The tokens that may come next: a bit each, the lowest first, at least as many as the
        vocabulary has tokens."""
        ...

    def take(self, token_id: int) -> None:
        """Go on behind a token."""
        ...


class GrammarSource(Protocol):
    """Where constraints come from."""

    def is_ready(self, grammar: Grammar) -> bool:
        """Whether `open` would not have to compile."""
        ...

    def prepare(self, grammar: Grammar, then: Callable[[], None]) -> None:
        """Compile in a thread and call `then`, there or here, whatever came of it.

        Raises InvalidGenerationError for what needs no compiling to be refused, EngineBusyError
        when too many wait.
        """
        ...

    def open(self, grammar: Grammar) -> Constraint:
        """A reply's place at the start of a grammar; compiles it if nobody has.

        Raises InvalidGenerationError with the grammar's `param`.
        """
        ...


def constraint_of(grammar: Grammar | None, source: GrammarSource | None) -> Constraint | None:
    """Where a reply begins that must have this form; None if it need have none.

    Raises InvalidGenerationError.
    """
    if grammar is None:
        return None
    if source is None:
        raise InvalidGenerationError("replies have no form here", param=grammar.param)
    return source.open(grammar)


def unfollowable(grammar: Grammar | None, constraint: Constraint) -> InvalidGenerationError:
    """The error of a reply whose form turned out, on the way, to be more than may be computed."""
    param = None if grammar is None else grammar.param
    return InvalidGenerationError(f"the grammar can't be followed: {constraint.error}", param=param)


def check_grammar(grammar: Grammar) -> None:
    """Raise InvalidGenerationError for a grammar that is too large or too deep to be compiled."""
    if len(grammar.text) > MAX_GRAMMAR_CHARS:
        raise InvalidGenerationError(
            f"a grammar has at most {MAX_GRAMMAR_CHARS} characters, this one {len(grammar.text)}",
            param=grammar.param,
        )
    if _nesting(grammar.text) > MAX_NESTING:
        raise InvalidGenerationError(
            f"a grammar is nested at most {MAX_NESTING} levels deep", param=grammar.param
        )


def _nesting(text: str) -> int:
    """How deep brackets stand in each other, as far as a reader sees that knows no language: those
    in strings count too, those behind a backslash don't."""
    depth = deepest = 0
    is_escaped = False
    for char in text:
        if is_escaped:
            is_escaped = False
        elif char == "\\":
            is_escaped = True
        elif char in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in ")]}":
            depth = max(0, depth - 1)
    return deepest
