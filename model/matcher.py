"""Grammars compiled, and where a reply stands in one: which tokens may come next.

Compiling takes from a millisecond to seconds, so `Grammars.prepare` does it in a thread; `open`
then finds it done. llguidance never raises for what a grammar does: a matcher that has failed says
so ever after, and its `error` must be looked at.

Invariants:
    of one grammar at most one compilation is under way
    a compiled grammar is never used, only copies of it
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import llguidance
import llguidance.hf
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from model.errors import EngineBusyError, InvalidGenerationError
from model.grammar import Grammar, GrammarKind, check_grammar

_MAX_CACHED = 256
_MAX_CACHED_CHARS = 4_000_000
_MAX_PREPARING = 64
_MAX_ERROR_CHARS = 300
_NUM_THREADS = 2


def _limits() -> llguidance.LLParserLimits:
    """Bounds on the work that one grammar may cause: the library's own, but wide enough for objects
    of thousands of properties. Its messages would repeat parts of the grammar at length."""
    return llguidance.LLParserLimits(
        max_grammar_size=200_000,
        max_items_in_row=10_000,
        step_max_items=100_000,
        verbose_errors=False,
    )


def _json_options() -> "llguidance._lib.JsonCompileOptions":
    # White space between JSON's tokens is a line's end and an indentation at most: a reply of a
    # bounded schema is bounded, and a small model can't lose itself in blanks.
    return {"whitespace_pattern": r"\n?[ ]{0,16}", "coerce_one_of": True}


class Matcher:
    """The `Constraint` of one reply."""

    def __init__(self, matcher: llguidance.LLMatcher) -> None:
        self._matcher = matcher

    @property
    def error(self) -> str | None:
        """What llguidance says went wrong."""
        return _brief(self._matcher.get_error()) if self._matcher.is_error() else None

    @property
    def is_accepting(self) -> bool:
        """Whether the reply may end here."""
        return self._matcher.is_accepting()

    @property
    def is_over(self) -> bool:
        """Whether nothing can follow but an end token."""
        return self._matcher.is_stopped()

    def mask(self) -> bytes:
        """The tokens that may come next: a bit each, the lowest first, at least as many as the
        vocabulary has tokens."""
        return self._matcher.compute_bitmask()

    def take(self, token_id: int) -> None:
        """Go on behind a token."""
        self._matcher.consume_token(token_id)

    def fork(self) -> "Matcher":
        """The same place, to go on from elsewhere."""
        return Matcher(self._matcher.deep_copy())


class Grammars:
    """Compiles for one tokenizer."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, vocab_size: int, eos_token_ids: Iterable[int]
    ) -> None:
        self._tokenizer: llguidance.LLTokenizer | None = None
        if isinstance(tokenizer, PreTrainedTokenizerFast):
            # Half a second in which no other thread runs: now, and not under somebody's reply.
            self._tokenizer = llguidance.hf.from_tokenizer(
                tokenizer, n_vocab=vocab_size, eos_token=sorted(eos_token_ids) or None
            )
        self._compiled: OrderedDict[Grammar, Matcher] = OrderedDict()
        self._num_chars = 0
        self._preparing: dict[Grammar, Future[None]] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="grammar")

    def is_ready(self, grammar: Grammar) -> bool:
        """Whether `open` would not have to compile."""
        with self._lock:
            return grammar in self._compiled

    def prepare(self, grammar: Grammar, then: Callable[[], None]) -> None:
        """Compile in a thread and call `then`, there or here; see `GrammarSource`."""
        check_grammar(grammar)
        with self._lock:
            under_way = self._preparing.get(grammar)
            if under_way is None:
                if len(self._preparing) >= _MAX_PREPARING:
                    raise EngineBusyError(f"{_MAX_PREPARING} grammars are being compiled already")
                under_way = self._pool.submit(self._prepare, grammar)
                self._preparing[grammar] = under_way
        under_way.add_done_callback(lambda _done: then())

    def open(self, grammar: Grammar) -> Matcher:
        """A place of its own at the start of a grammar; see `GrammarSource`."""
        with self._lock:
            compiled = self._compiled.get(grammar)
            if compiled is not None:
                self._compiled.move_to_end(grammar)
        if compiled is None:
            compiled = self._compile(grammar)
            self._keep(grammar, compiled)
        if compiled.error is not None:
            raise InvalidGenerationError(
                f"the grammar can't be used: {compiled.error}", param=grammar.param
            )
        return compiled.fork()

    def _prepare(self, grammar: Grammar) -> None:
        try:
            if not self.is_ready(grammar):
                self._keep(grammar, self._compile(grammar))
        except InvalidGenerationError:
            pass  # said by `open`, which finds it at once
        finally:
            with self._lock:
                del self._preparing[grammar]

    def _compile(self, grammar: Grammar) -> Matcher:
        check_grammar(grammar)
        if self._tokenizer is None:
            raise InvalidGenerationError(
                "this model's tokenizer has no fast form, so its replies can't be given a form",
                param=grammar.param,
            )
        matcher = llguidance.LLMatcher(
            self._tokenizer, _source(grammar), limits=_limits(), log_level=0
        )
        if not matcher.is_error():
            matcher.compute_bitmask()  # the first is the dearest: not under other replies
        return Matcher(matcher)

    def _keep(self, grammar: Grammar, compiled: Matcher) -> None:
        """What can't be used is kept too: its sender will try again."""
        with self._lock:
            if grammar in self._compiled:
                return
            self._compiled[grammar] = compiled
            self._num_chars += len(grammar.text)
            while len(self._compiled) > 1 and (
                len(self._compiled) > _MAX_CACHED or self._num_chars > _MAX_CACHED_CHARS
            ):
                oldest, _ = self._compiled.popitem(last=False)
                self._num_chars -= len(oldest.text)


def _source(grammar: Grammar) -> str:
    matcher = llguidance.LLMatcher
    match grammar.kind:
        case GrammarKind.REGEX:
            return matcher.grammar_from_regex(grammar.text)
        case GrammarKind.LARK:
            return matcher.grammar_from_lark(grammar.text)
        case GrammarKind.JSON_OBJECT:
            schema: object = {"type": "object"}
        case GrammarKind.JSON_SCHEMA:
            try:
                schema = json.loads(grammar.text)
            except ValueError as exc:
                raise InvalidGenerationError(
                    f"the schema is not JSON: {exc}", param=grammar.param
                ) from exc
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    if not isinstance(schema, dict):
        raise InvalidGenerationError("a schema is a JSON object", param=grammar.param)
    return matcher.grammar_from_json_schema(schema, overrides=_json_options())


def _brief(message: str) -> str:
    first = " ".join(message.split())
    return first if len(first) <= _MAX_ERROR_CHARS else first[:_MAX_ERROR_CHARS] + "…"
