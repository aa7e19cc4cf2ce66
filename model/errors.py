"""What can go wrong in the engine, as seen by its callers.

    ModelError                     code                      retryable
    ├ InvalidGenerationError       invalid_request           no    can never be served
    │ └ ContextLengthError         context_length_exceeded   no    with counts
    ├ EngineBusyError              engine_busy               yes   the admission bound is reached
    ├ EngineUnavailableError       engine_unavailable        yes   starting, restarting or closed
    │ └ EngineDiedError            engine_died               yes   died under a running turn
    ├ RepeatedCrashError           repeated_crash            no    in flight at two crashes
    ├ SequenceFailedError          sequence_failed           yes   one broke, the engine lives
    ├ ModelLoadError               model_load_failed         no    not found, read or servable
    └ OutOfBlocksError             out_of_blocks             yes   stays in the engine: preempt

No class knows HTTP; `app/errors.py` maps them.
"""

from typing import ClassVar


class ModelError(Exception):
    """Base of the family. `code` is stable; `retryable`: the same call may succeed later."""

    code: ClassVar[str] = "model_error"
    retryable: ClassVar[bool] = False


class InvalidGenerationError(ModelError):
    """The request itself is at fault; `param` names the part, if one part is."""

    code = "invalid_request"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ContextLengthError(InvalidGenerationError):
    """The prompt leaves no room in the context; the counts are tokens.

    `is_cut`: so many are left when all turns are dropped that may be.
    """

    code = "context_length_exceeded"

    def __init__(self, num_tokens: int, max_context_tokens: int, *, is_cut: bool = False) -> None:
        # One position must stay free for the first token of the reply.
        over = num_tokens + 1 - max_context_tokens
        uncut = " with its last turn alone, which is never cut" if is_cut else ""
        super().__init__(
            f"the prompt has {num_tokens:,} tokens{uncut}; the context holds "
            f"{max_context_tokens:,} with the reply's first: {over:,} too many",
            param="input",
        )
        self.num_tokens = num_tokens
        self.max_context_tokens = max_context_tokens
        self.num_tokens_over = over


class EngineBusyError(ModelError):
    """Too many generations are waiting already."""

    code = "engine_busy"
    retryable = True


class EngineUnavailableError(ModelError):
    """The engine is starting, restarting or closed."""

    code = "engine_unavailable"
    retryable = True


class EngineDiedError(EngineUnavailableError):
    """The engine's process ended while this generation was in flight."""

    code = "engine_died"


class RepeatedCrashError(ModelError):
    """The engine's process ended twice under this generation, which may well be why."""

    code = "repeated_crash"


class SequenceFailedError(ModelError):
    """One generation failed inside the engine; its batch mates go on."""

    code = "sequence_failed"
    retryable = True


class ModelLoadError(ModelError):
    """The model can't be found, read or served; the message says what to do."""

    code = "model_load_failed"


class OutOfBlocksError(ModelError):
    """Fewer blocks can be had than are wanted. Stays inside the engine."""

    code = "out_of_blocks"
    retryable = True

    def __init__(self, wanted: int, available: int) -> None:
        super().__init__(f"{wanted} blocks wanted, {available} to be had")
        self.wanted = wanted
        self.available = available
