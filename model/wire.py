"""The engine's socket: what is said over it, and how it is framed.

A frame is a length (4 bytes, big endian) and a pickled message. Both ends are this program, over a
socket pair nobody else can reach. Messages are frozen dataclasses of plain values; a prompt crosses
as packed 32-bit ids, which costs a thousandth of what a tuple does.
"""

import pickle
import struct
from array import array
from dataclasses import dataclass, replace
from typing import Any

from model.config import EngineConfig
from model.errors import ContextLengthError, InvalidGenerationError, ModelError
from model.grammar import Grammar
from model.messages import EngineInfo, GenerationEvent, GenerationRequest, TierName

HEADER = struct.Struct(">I")

# To the engine


@dataclass(frozen=True, slots=True)
class Start:
    """The first message: load this."""

    config: EngineConfig


@dataclass(frozen=True, slots=True)
class Submit:
    """A generation; the request's own `token_ids` stay empty, `packed_ids` are they."""

    request: GenerationRequest
    packed_ids: bytes

    @classmethod
    def of(cls, request: GenerationRequest) -> "Submit":
        """Pack the prompt."""
        ids = request.token_ids
        packed = ids if isinstance(ids, array) else array("i", ids)
        return cls(replace(request, token_ids=()), packed.tobytes())

    def unpack(self) -> GenerationRequest:
        """The request as it was."""
        token_ids = array("i")
        token_ids.frombytes(self.packed_ids)
        return replace(self.request, token_ids=token_ids)


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a generation at the next step."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Query:
    """A question about what lies between turns (`Worker` has their names); the argument is a
    conversation's id, where it is about one, and the tier to move it to, where it is moved; or a
    grammar."""

    query_id: int
    name: str
    argument: str | Grammar | None = None
    tier: TierName | None = None


Command = Start | Submit | Cancel | Query

# From the engine


@dataclass(frozen=True, slots=True)
class Progress:
    """What start-up is busy with."""

    text: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded."""

    info: EngineInfo


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """The model can't be loaded; the process ends."""

    message: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A ModelError as values: its class's name, and what its constructor takes."""

    kind: str
    arguments: tuple[Any, ...]
    param: str | None = None

    @classmethod
    def of(cls, error: ModelError) -> "Failure":
        """Take an error apart."""
        if isinstance(error, ContextLengthError):
            return cls("ContextLengthError", (error.num_tokens, error.max_context_tokens))
        param = error.param if isinstance(error, InvalidGenerationError) else None
        return cls(type(error).__name__, (str(error),), param)

    def to_error(self) -> ModelError:
        """A fresh error, so that no traceback grows on a shared one."""
        error_class = _class_named(self.kind, ModelError)
        if self.param is not None and error_class is InvalidGenerationError:
            return InvalidGenerationError(*self.arguments, param=self.param)
        return error_class(*self.arguments)


@dataclass(frozen=True, slots=True)
class Events:
    """What one step did, by request id, in order."""

    events: tuple[tuple[str, GenerationEvent | Failure], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """To a query; a value of `model.messages` or a number, or a failure, which is raised."""

    query_id: int
    value: object


@dataclass(frozen=True, slots=True)
class Logged:
    """A record for the front end's log, which writes both processes' in one form; `turn_ids` are
    the generations it is about, `exception` a traceback."""

    level: int
    logger: str
    message: str
    turn_ids: tuple[str, ...] = ()
    exception: str | None = None


Report = Progress | Ready | LoadFailed | Events | Answer | Logged


def encode(message: Command | Report) -> bytes:
    """One frame."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return HEADER.pack(len(body)) + body


def decode(body: bytes) -> Command | Report:
    """The message in a frame's body."""
    message: Command | Report = pickle.loads(body)
    return message


def _class_named(name: str, family: type[ModelError]) -> type[ModelError]:
    if family.__name__ == name:
        return family
    found = (_class_named(name, child) for child in family.__subclasses__())
    return next((c for c in found if c.__name__ == name), ModelError)
