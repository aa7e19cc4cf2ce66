"""What was asked before under the same `client_turn_id` is not done again, but found.

Holds no state of its own: a repetition is one by what is stored.
"""

from collections.abc import Sequence
from dataclasses import asdict

from model.config import SamplingParams
from sessions.errors import IdempotencyConflictError
from sessions.store import Store
from sessions.terms import PLAIN
from sessions.types import InputMessage, OwnerId, Session, SessionId, Turn, TurnId, TurnRequest
from sessions.validation import check_client_turn_id, digest


class Repetitions:
    """Finds the turns that were asked for before; None where there is none."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def submitted(
        self, owner: OwnerId, session_id: SessionId, request: TurnRequest
    ) -> Turn | None:
        """A turn that was submitted with this request."""
        check_client_turn_id(request.client_turn_id)
        session = await self._store.session(owner, session_id)
        return await self.known(session, request.client_turn_id, named_turn(request))

    async def regenerated(
        self, owner: OwnerId, turn_id: TurnId, params: SamplingParams, client_turn_id: str | None
    ) -> Turn | None:
        """A sibling that was asked for like this."""
        return await self._beside(owner, turn_id, client_turn_id, named_sibling(turn_id, params))

    async def gone_on(
        self,
        owner: OwnerId,
        turn_id: TurnId,
        max_more_tokens: int | None,
        client_turn_id: str | None,
    ) -> Turn | None:
        """A reply that went on like this."""
        named = named_rest(turn_id, max_more_tokens)
        return await self._beside(owner, turn_id, client_turn_id, named)

    async def known(self, session: Session, client_turn_id: str | None, named: str) -> Turn | None:
        """The session's turn of that id; raises IdempotencyConflictError when something else was
        asked for under it."""
        if client_turn_id is None:
            return None
        found = await self._store.submitted(session.id, client_turn_id)
        if found is None:
            return None
        turn, its_digest = found
        if its_digest != named:
            raise IdempotencyConflictError(
                f"{client_turn_id!r} was used for another request "
                "(as client_turn_id or Idempotency-Key)"
            )
        return turn

    async def _beside(
        self, owner: OwnerId, turn_id: TurnId, client_turn_id: str | None, named: str
    ) -> Turn | None:
        check_client_turn_id(client_turn_id)
        sibling = await self._store.turn(owner, turn_id)
        session = await self._store.session(owner, sibling.session_id)
        return await self.known(session, client_turn_id, named)


def names_parent(request: TurnRequest) -> bool:
    """Whether it says what it follows; None is a beginning then, and not the head."""
    return request.parent_given or request.parent is not None


def named_turn(request: TurnRequest) -> str:
    """A name for all that a request for a turn says."""
    if request.digest is not None:
        return request.digest
    said = {
        "input": [asdict(message) for message in request.input],
        "params": asdict(request.params),
        "metadata": request.metadata,
        "parent": [request.parent] if names_parent(request) else None,
    }
    if request.terms != PLAIN:
        said["terms"] = request.terms.to_stored()
    return digest(said)


def named_messages(messages: Sequence[InputMessage]) -> str:
    """As `named_turn`, of messages that are put in by themselves."""
    return digest({"put": [asdict(message) for message in messages]})


def named_sibling(turn_id: TurnId, params: SamplingParams) -> str:
    """As `named_turn`, of a reply that is drawn again."""
    return digest({"regenerate": turn_id, "params": asdict(params)})


def named_rest(turn_id: TurnId, max_more_tokens: int | None) -> str:
    """As `named_turn`, of a reply that goes on."""
    return digest({"continue": turn_id, "max_more_tokens": max_more_tokens})
