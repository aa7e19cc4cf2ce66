"""A turn's prompt as a value: its ids, where they leave the base's log, what is known of them."""

from dataclasses import dataclass, field

from model.config import SamplingParams
from model.messages import GenerationRequest
from sessions.token_log import TokenSpan
from sessions.types import Session, SessionId, TurnId


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """All ids to feed, where they leave the base's log, and what the engine may know of them.

    `table_of` is the turn whose parked block table fits best; `origin_id` the session it lies in,
    where that is another one. The first `num_public_tokens` are nobody's own.
    """

    token_ids: tuple[int, ...] = field(repr=False)
    base_id: TurnId | None = None
    keep_tokens: int = 0
    table_of: TurnId | None = None
    num_known_tokens: int = 0
    known_fingerprint: str | None = None
    diverged_at: int | None = None
    origin_id: SessionId | None = None
    num_public_tokens: int = 0
    num_dropped_turns: int = 0  # of a conversation that was too long

    def generation(
        self, request_id: str, session: Session, params: SamplingParams
    ) -> GenerationRequest:
        """What the engine is asked, for a session; parked under `request_id`."""
        return GenerationRequest(
            request_id=request_id,
            token_ids=self.token_ids,
            params=params,
            owner=session.owner,
            conversation_id=session.id,
            parent_turn_id=self.table_of,
            origin_conversation_id=self.origin_id,
            num_public_tokens=self.num_public_tokens,
            num_known_tokens=self.num_known_tokens,
            parent_fingerprint=self.known_fingerprint,
            diverged_at=self.diverged_at,
            retain_s=session.retain_s,
            priority=session.priority,
        )

    def span(self, turn_id: TurnId, fingerprint: str) -> TokenSpan:
        """The turn's part of the log as long as there is no reply."""
        return TokenSpan(
            turn_id=turn_id,
            base_id=self.base_id,
            keep_tokens=self.keep_tokens,
            num_prompt_tokens=len(self.token_ids),
            ids=self.token_ids[self.keep_tokens :],
            fingerprint=fingerprint,
        )
