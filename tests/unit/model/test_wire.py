"""What is said over the engine's socket comes out as it went in."""

import pickle
from dataclasses import replace

import pytest

from model import errors
from model.config import EngineConfig, SamplingParams
from model.errors import (
    ContextLengthError,
    InvalidGenerationError,
    ModelError,
    OutOfBlocksError,
    SequenceFailedError,
)
from model.messages import FinishReason, GenerationDelta, GenerationFinished, GenerationRequest
from model.wire import (
    HEADER,
    Answer,
    Cancel,
    Events,
    Failure,
    LoadFailed,
    Logged,
    Progress,
    Query,
    Start,
    Submit,
    decode,
    encode,
)

REQUEST = GenerationRequest(
    request_id="r",
    token_ids=tuple(range(70_000, 70_300)),
    params=SamplingParams(stop=("é",), logit_bias=((3, -1.5),)),
    conversation_id="conv",
)
DONE = GenerationFinished(reason=FinishReason.STOP, token_ids=(1,), text="🙂", num_rows_computed=3)
MESSAGES = (
    Start(EngineConfig(model="m")),
    Submit.of(REQUEST),
    Cancel("r"),
    Query(7, "evict"),
    Progress("loading"),
    LoadFailed("no such model"),
    Answer(7, 3),
    Logged(40, "model.worker", "a step failed", ("r",), "Traceback …"),
    Events((("r", GenerationDelta(token_ids=(5,), text="\ud83d")), ("r", DONE))),
    Events((("r", Failure.of(SequenceFailedError("broken"))),)),
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_comes_out_of_its_frame_as_it_went_in(message):
    frame = encode(message)

    (length,) = HEADER.unpack(frame[: HEADER.size])
    assert length == len(frame) - HEADER.size
    assert decode(frame[HEADER.size :]) == message


def test_a_prompt_crosses_packed_and_comes_out_whole():
    submit = Submit.of(REQUEST)

    assert submit.request.token_ids == ()
    assert len(submit.packed_ids) == 4 * 300
    unpacked = submit.unpack()
    assert tuple(unpacked.token_ids) == REQUEST.token_ids
    assert replace(unpacked, token_ids=REQUEST.token_ids) == REQUEST


def test_a_long_prompt_is_small_on_the_wire():
    long = GenerationRequest(
        request_id="r", token_ids=tuple(range(100_000)), params=SamplingParams()
    )

    assert len(encode(Submit.of(long))) < 401_000


def family(cls: type[ModelError]) -> set[type[ModelError]]:
    return {cls}.union(*(family(child) for child in cls.__subclasses__()))


CROSSING = sorted(family(ModelError) - {OutOfBlocksError, ContextLengthError}, key=str)


@pytest.mark.parametrize("error_class", CROSSING, ids=lambda c: c.__name__)
def test_every_error_crosses_with_its_class_and_message(error_class):
    assert error_class.__module__ == errors.__name__
    failure = pickle.loads(pickle.dumps(Failure.of(error_class("what happened"))))

    error = failure.to_error()

    assert type(error) is error_class
    assert str(error) == "what happened"
    assert error is not failure.to_error()


def test_the_part_of_the_request_at_fault_crosses():
    error = Failure.of(InvalidGenerationError("too odd", param="stop")).to_error()

    assert isinstance(error, InvalidGenerationError)
    assert error.param == "stop"
    nameless = Failure.of(InvalidGenerationError("odd")).to_error()
    assert isinstance(nameless, InvalidGenerationError)
    assert nameless.param is None


def test_a_context_that_is_too_long_crosses_with_its_counts():
    error = Failure.of(ContextLengthError(50, 40)).to_error()

    assert isinstance(error, ContextLengthError)
    assert (error.num_tokens, error.max_context_tokens, error.num_tokens_over) == (50, 40, 11)
    assert error.param == "input"
    assert str(error) == str(ContextLengthError(50, 40))


def test_an_error_of_an_unknown_name_is_still_a_model_error():
    error = Failure("ErrorFromTheFuture", ("what happened",)).to_error()

    assert type(error) is ModelError
    assert str(error) == "what happened"
