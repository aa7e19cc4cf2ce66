"""One choice of a chat completion: its deltas as they stream, or the whole of it.

Invariant: the deltas' parts add up to the whole message's.
"""

import secrets
from collections.abc import Sequence
from typing import Any

from app.likelihood_object import likelihood_object
from model.messages import FinishReason, GenerationFinished
from sessions.call_scanner import CallBegun, CallDelta, CallDone
from sessions.completion_events import CompletionFinished, ReplyPiece
from sessions.likelihoods import TokenLikelihood
from sessions.reply_parser import ReasoningDelta, ReplyEvent, TextDelta

Json = dict[str, Any]


class ChatChoice:
    """Writes one. `may_call`: its first delta waits for the first thing said, for a message that
    only calls has no content."""

    def __init__(self, index: int, *, may_call: bool, has_logprobs: bool) -> None:
        self._index = index
        self._may_call = may_call
        self._has_logprobs = has_logprobs
        self._is_begun = False
        self._call_ids: list[str] = []
        self._told: list[TokenLikelihood] = []

    def start(self) -> list[Json]:
        """The prompt is taken."""
        return [] if self._may_call else self._begin("")

    def piece(self, piece: ReplyPiece) -> list[Json]:
        """The choices of the chunks for a piece."""
        choices: list[Json] = []
        for event, likelihoods in zip(piece.events, piece.likelihoods, strict=True):
            self._told += likelihoods
            delta = self._delta(event)
            if delta is None:
                continue
            if not self._is_begun:
                choices += self._begin(None if isinstance(event, CallBegun) else "")
            choices.append(self._choice(delta, likelihoods=likelihoods))
        return choices

    def end(self, end: CompletionFinished) -> list[Json]:
        """The last chunk's choice, behind the first's if nothing was said."""
        choices = [] if self._is_begun else self._begin("")
        return [*choices, self._choice({}, _finish_reason(end))]

    def whole(self, end: CompletionFinished) -> Json:
        """The choice of an answer that isn't streamed, once every piece was taken."""
        reply = end.reply
        message: Json = {
            "role": "assistant",
            "content": None if reply.calls and not reply.text else reply.text,
            "refusal": None,
            "annotations": [],
        }
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if reply.calls:
            message["tool_calls"] = [
                {"id": call_id, **_function(call.name, call.arguments)}
                for call_id, call in zip(self._call_ids, reply.calls, strict=True)
            ]
        return {
            "index": self._index,
            "finish_reason": _finish_reason(end),
            "message": message,
            "logprobs": self._logprobs(self._told),
        }

    def _begin(self, content: str | None) -> list[Json]:
        self._is_begun = True
        return [self._choice({"role": "assistant", "content": content, "refusal": None})]

    def _delta(self, event: ReplyEvent) -> Json | None:
        match event:
            case TextDelta(text):
                return {"content": text}
            case ReasoningDelta(text):
                return {"reasoning_content": text}
            case CallBegun(number, name):
                self._call_ids.append(f"call_{secrets.token_hex(12)}")
                call = {"index": number, "id": self._call_ids[number], **_function(name, "")}
                return {"tool_calls": [call]}
            case CallDelta(number, text):
                return {"tool_calls": [{"index": number, "function": {"arguments": text}}]}
            case CallDone():
                return None

    def _choice(
        self,
        delta: Json,
        finish_reason: str | None = None,
        *,
        likelihoods: Sequence[TokenLikelihood] = (),
    ) -> Json:
        return {
            "index": self._index,
            "delta": delta,
            "logprobs": self._logprobs(likelihoods) if likelihoods else None,
            "finish_reason": finish_reason,
        }

    def _logprobs(self, likelihoods: Sequence[TokenLikelihood]) -> Json | None:
        if not self._has_logprobs:
            return None
        return {"content": [likelihood_object(each) for each in likelihoods], "refusal": None}


def finish_reason_of(finished: GenerationFinished) -> str:
    """Why a text ended."""
    is_cut = finished.reason in (FinishReason.LENGTH, FinishReason.DEADLINE)
    return "length" if is_cut else "stop"


def _finish_reason(end: CompletionFinished) -> str:
    reason = finish_reason_of(end.finished)
    return "tool_calls" if end.reply.calls and reason == "stop" else reason


def _function(name: str, arguments: str) -> Json:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}
