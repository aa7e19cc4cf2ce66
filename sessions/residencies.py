"""Where sessions' states lie, for lists and badges: as the engine last said, and as it is stored.

The engine is asked now and then and behind each turn; what it says is kept here, and written beside
the sessions' rows as manifests, so that a server which has just started says the same before its
engine is up. It is shown, never relied on.

Invariants:
    a server writes manifests of its own only: another's engine is another's
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from model.engine import Engine, EngineState
from model.errors import ModelError
from model.messages import Residency, TierName
from sessions.background import Background
from sessions.errors import StoreUnavailableError
from sessions.store import Store
from sessions.types import Session, Turn

logger = logging.getLogger(__name__)

POLL_S = 5.0
PAUSE_S = 0.25
"""Behind a turn the engine is asked soon, but not for each of many that end together."""


class Residencies(Background):
    """An async context manager: while it is open, it keeps up with the engine."""

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        runner_id: str,
        poll_s: float = POLL_S,
    ) -> None:
        self._store = store
        self._engine = engine
        self._runner_id = runner_id
        self._poll_s = poll_s
        # What is known of each, and what was written; the engine bounds how many there are.
        self._known: dict[str, Residency] | None = None
        self._written: dict[str, dict[str, Any]] | None = None
        self._is_news = asyncio.Event()

    def touch(self) -> None:
        """Something has changed: ask soon."""
        self._is_news.set()

    def assume(self, turn: Turn) -> None:
        """A turn has ended, so that its table is on the device: until the engine is asked again,
        it is taken for what there is."""
        if self._known is None or turn.usage is None or turn.finished_at is None:
            return
        info = self._engine.info
        num_tokens = turn.usage.input_tokens + max(0, turn.usage.output_tokens - 1)
        num_blocks = -(-num_tokens // info.block_size)
        self._known[turn.session_id] = Residency(
            conversation_id=turn.session_id,
            turn_id=turn.id,
            tier=TierName.DEVICE,
            tail="",
            num_tokens=num_tokens,
            num_bytes=num_blocks * info.block_bytes,
            used_at=turn.finished_at.timestamp(),
        )

    def of(self, session: Session) -> Residency | None:
        """Where the session's state is; None: nowhere, so that its tokens are computed again."""
        if self._known is not None:
            return self._known.get(session.id)
        return _from_manifest(session.id, session.manifest, self._engine_fingerprint())

    async def refresh(self) -> None:
        """Ask the engine, and write what has changed. Raises ModelError, StoreUnavailableError."""
        found = await self._engine.residency()
        self._known = {residency.conversation_id: residency for residency in found}
        await self._write()

    async def _write(self) -> None:
        assert self._known is not None
        if self._written is None:
            self._written = await self._store.manifests(self._runner_id)
        fingerprint = self._engine.info.fingerprint
        wanted = {name: self._manifest(r, fingerprint) for name, r in self._known.items()}
        changed: dict[str, dict[str, Any] | None] = {
            name: manifest
            for name, manifest in wanted.items()
            if self._written.get(name) != manifest
        }
        changed |= dict.fromkeys(self._written.keys() - wanted.keys())
        if changed:
            await self._store.write_manifests(self._runner_id, changed)
            self._written = wanted

    def _manifest(self, residency: Residency, fingerprint: str) -> dict[str, Any]:
        fields = asdict(residency)
        del fields["conversation_id"]
        return {
            **fields,
            "tier": residency.tier.value,
            "stored_in": [tier.value for tier in residency.stored_in],
            "used_at": round(residency.used_at),  # its clock's grain moves
            "fingerprint": fingerprint,
            "runner": self._runner_id,
        }

    def _engine_fingerprint(self) -> str | None:
        with suppress(ModelError):
            return self._engine.info.fingerprint
        return None

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._is_news.wait()
            self._is_news.clear()
            if self._engine.state is not EngineState.READY:
                continue
            try:
                await self.refresh()
            except ModelError:
                self._known = None  # it is restarting, and nobody knows what it has
            except StoreUnavailableError as exc:
                logger.warning("no manifest is written: %s", exc)
            await asyncio.sleep(PAUSE_S)


def _from_manifest(
    name: str, manifest: Mapping[str, Any] | None, fingerprint: str | None
) -> Residency | None:
    """What outlived the engine that wrote it: what was in memory alone is gone."""
    if not manifest or TierName.DISK.value not in manifest.get("stored_in", ()):
        return None
    if fingerprint is not None and manifest["fingerprint"] != fingerprint:
        return None
    return Residency(
        conversation_id=name,
        turn_id=manifest["turn_id"],
        tier=TierName.DISK,
        tail=manifest["tail"],
        num_tokens=manifest["num_tokens"],
        num_bytes=manifest["num_bytes"],
        used_at=manifest["used_at"],
        stored_in=(TierName.DISK,),
    )
