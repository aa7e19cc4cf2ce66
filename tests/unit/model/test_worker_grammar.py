"""Generations that wait for their grammars: compiled in a thread, while the others go on."""

import threading

from model.errors import EngineBusyError, InvalidGenerationError
from model.grammar import Grammar, GrammarKind
from model.messages import FinishReason, GenerationFinished
from model.wire import Answer, Cancel, Failure, Query
from tests.support.worker_bench import BreakableRunner, make_core, submit, working

FORM = Grammar(kind=GrammarKind.REGEX, text="a", param="response_format")


class OnlyToken:
    """A constraint that lets one token be drawn, for ever."""

    error, is_over = None, False

    def __init__(self, token_id: int) -> None:
        self._token_id = token_id

    def mask(self) -> bytes:
        return bytes([1 << self._token_id])

    def take(self, token_id: int) -> None:
        assert token_id == self._token_id


class SlowGrammars:
    """Compiles when it is told to."""

    def __init__(self, *errors: Exception) -> None:
        self.asked = threading.Semaphore(0)
        self.is_compiled = False
        self._errors = list(errors)
        self._waiting = []

    def is_ready(self, grammar) -> bool:
        return self.is_compiled

    def prepare(self, grammar, then) -> None:
        if self._errors:
            raise self._errors.pop(0)
        self._waiting.append(then)
        self.asked.release()

    def compile(self) -> None:
        self.is_compiled = True
        for then in self._waiting:
            then()

    def open(self, grammar) -> OnlyToken:
        if grammar.text == "broken":
            raise InvalidGenerationError("it is broken", param=grammar.param)
        return OnlyToken(3)


def core_with(grammars):
    core = make_core(BreakableRunner())
    core.grammars = grammars
    return core


def test_the_others_go_on_while_a_grammar_is_compiled(monkeypatch):
    grammars = SlowGrammars()
    with working(core_with(grammars), monkeypatch) as work:
        work.peer.send(submit("slow", grammar=FORM))
        assert grammars.asked.acquire(timeout=10)
        work.peer.send(submit("free"))
        assert isinstance(work.peer.events_until_ended("free")["free"][-1], GenerationFinished)

        grammars.compile()

        *_, end = work.peer.events_until_ended("slow")["slow"]
        assert end.token_ids == (3, 3, 3, 3)


def test_a_generation_that_waits_for_its_grammar_can_be_cancelled(monkeypatch):
    grammars = SlowGrammars()
    with working(core_with(grammars), monkeypatch) as work:
        work.peer.send(submit("slow", grammar=FORM), Cancel("slow"))

        (end,) = work.peer.events_until_ended("slow")["slow"]
        assert (end.reason, end.token_ids) == (FinishReason.CANCELLED, ())

        grammars.compile()  # too late, and nobody minds
        work.peer.send(submit("free"))
        work.peer.events_until_ended("free")


def test_a_grammar_is_judged_when_it_is_compiled_and_the_others_go_on(monkeypatch):
    broken = Grammar(kind=GrammarKind.REGEX, text="broken", param="text.format")
    grammars = SlowGrammars(EngineBusyError("too many"))
    with working(core_with(grammars), monkeypatch) as work:
        assert type(work.peer.ask("grammar", FORM).to_error()) is EngineBusyError

        work.peer.send(Query(1, "grammar", FORM), Query(2, "grammar", broken), submit("free"))
        work.peer.events_until_ended("free")
        grammars.compile()

        assert work.peer.receive() == Answer(1, None)
        answer = work.peer.receive()
        assert (answer.query_id, answer.value.to_error().param) == (2, "text.format")
        assert work.peer.ask("grammar", FORM) is None  # and now at once


def test_where_replies_have_no_form_every_grammar_is_refused(monkeypatch):
    with working(make_core(BreakableRunner()), monkeypatch) as work:
        error = work.peer.ask("grammar", FORM).to_error()

    assert isinstance(error, InvalidGenerationError)
    assert error.param == "response_format"


def test_what_the_compiler_refuses_is_said_with_its_senders_name(monkeypatch):
    broken = Grammar(kind=GrammarKind.REGEX, text="broken", param="text.format")
    grammars = SlowGrammars(EngineBusyError("too many"))
    with working(core_with(grammars), monkeypatch) as work:
        work.peer.send(submit("busy", grammar=FORM))
        (failure,) = work.peer.events_until_ended("busy")["busy"]
        assert type(failure.to_error()) is EngineBusyError

        work.peer.send(submit("broken", grammar=broken))
        assert grammars.asked.acquire(timeout=10)
        grammars.compile()
        (failure,) = work.peer.events_until_ended("broken")["broken"]
        assert isinstance(failure, Failure)
        assert failure.to_error().param == "text.format"
