"""Sessions opened: new ones, and forks of others."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Unpack

from model.engine import Engine
from sessions.admission import Admission
from sessions.ids import new_session_id
from sessions.prompt import PromptComposer
from sessions.store import Store
from sessions.types import ForkOptions, OwnerId, Session, SessionId, SessionOptions
from sessions.validation import check_session


class Opener:
    """Opens sessions; holds no state of its own."""

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        composer: PromptComposer,
        admission: Admission,
        clock: Callable[[], datetime],
        max_input_chars: int,
    ) -> None:
        self._store = store
        self._engine = engine
        self._composer = composer
        self._admission = admission
        self._clock = clock
        self._max_input_chars = max_input_chars

    async def create(self, owner: OwnerId, **options: Unpack[SessionOptions]) -> Session:
        """A new session with the model that is served; raises EngineUnavailableError while there
        is none."""
        self._composer.renderer  # noqa: B018 - raises while there is none
        now, info = self._clock(), self._engine.info
        session = Session(
            owner=owner,
            model=info.model_id,
            fingerprint=info.fingerprint,
            created_at=now,
            updated_at=now,
            **_owned(options, new_session_id(now)),
        )
        check_session(
            session.title,
            session.instructions,
            session.metadata,
            max_chars=self._max_input_chars,
        )
        await self._store.add_session(session, clock_at=now)
        return session

    async def fork(
        self, owner: OwnerId, session_id: SessionId, **options: Unpack[ForkOptions]
    ) -> Session:
        """A new session that goes on behind a turn of this one (its head by default)."""
        at, title = options.get("at"), options.get("title")
        is_listed = options.get("is_listed", True)
        if title is not None:
            check_session(title, None, {}, max_chars=self._max_input_chars)
        origin = await self._store.session(owner, session_id)
        point = at if at is not None else origin.head_turn_id
        model, fingerprint = origin.model, origin.fingerprint
        if point is not None:
            await self._admission.ended_turn(origin, point)
            model, fingerprint = await self._store.written_with(point)
        now = self._clock()
        fork = replace(
            origin,
            id=options.get("id") or new_session_id(now),
            title=title if title is not None else origin.title,
            model=model,
            fingerprint=fingerprint,
            head_turn_id=point,
            forked_from=point,
            revision=1,
            is_pinned=False,
            is_listed=is_listed,
            is_auto_titled=origin.is_auto_titled and is_listed,
            manifest=None,
            active=(),
            created_at=now,
            updated_at=now,
        )
        # The origin's clock: what its template was told is in the tokens that are shared.
        clock_at = await self._store.clock_at(origin.id)
        await self._store.add_session(fork, clock_at=clock_at)
        return fork


def _owned(options: SessionOptions, new_id: SessionId) -> SessionOptions:
    """The options without what is shared with the caller, or not said."""
    owned = options.copy()
    owned["id"] = options.get("id") or new_id
    owned["title"] = options.get("title")
    owned["instructions"] = options.get("instructions")
    owned["metadata"] = dict(options.get("metadata") or {})
    owned["sampling"] = dict(options.get("sampling") or {})
    return owned
