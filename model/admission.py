"""Whether a generation can be taken: what is asked for exists, fits, and finds a place.

Invariant: nothing has changed when a request is refused.
"""

from collections.abc import Collection

from model.config import EngineConfig
from model.errors import ContextLengthError, EngineBusyError, InvalidGenerationError
from model.messages import GenerationRequest
from model.ports import CoreLimits


class Admission:
    """The checks of a request before it becomes a sequence."""

    def __init__(self, config: EngineConfig, limits: CoreLimits) -> None:
        self._limits = limits
        # What can run counts too, whether it runs yet or not: a burst fills both at once.
        self._max_in_flight = config.max_running + config.max_waiting

    def check(self, request: GenerationRequest, in_flight: Collection[str]) -> None:
        """Raises InvalidGenerationError, ContextLengthError or EngineBusyError. What goes on after
        a crash had its place before, and is never refused for want of one."""
        if request.request_id in in_flight:
            raise InvalidGenerationError(f"request id {request.request_id} is in use")
        self._check_ids(request)
        num_tokens = len(request.token_ids)
        if num_tokens >= self._limits.max_context_tokens:
            raise ContextLengthError(num_tokens, self._limits.max_context_tokens)
        if request.resumed_ids is None and len(in_flight) >= self._max_in_flight:
            raise EngineBusyError(f"{len(in_flight)} generations are in flight already")

    def _check_ids(self, request: GenerationRequest) -> None:
        vocab_size = self._limits.vocab_size
        if not request.token_ids:
            raise InvalidGenerationError("the prompt is empty", param="input")
        if min(request.token_ids) < 0 or max(request.token_ids) >= vocab_size:
            raise InvalidGenerationError("a token id is outside the vocabulary", param="input")
        for token_id, _ in request.params.logit_bias:
            if not 0 <= token_id < vocab_size:
                raise InvalidGenerationError(f"no token has id {token_id}", param="logit_bias")
