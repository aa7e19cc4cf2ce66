"""What a server has acknowledged to one client that talks without pause, and whether it still
knows all of it later.

The engine behind is `scripted_worker`: the only reply of n tokens is the numbers below n.
"""

import random
from dataclasses import dataclass, field

import aiohttp

from tests.support.scripted_worker import text_of
from tests.support.wire import Json, Wire, events_of, reply_of

MAX_TOKENS = 60


@dataclass
class Said:
    """One submission, and what came back of it: nothing, the beginning, the end."""

    session: str
    key: str
    path: str
    body: Json
    text: str
    events: list[Json] = field(default_factory=list)
    # As the server showed it, or as it was found after the kill that cut it off.
    ended: Json | None = None
    is_cut: bool = False

    @property
    def turn_id(self) -> str | None:
        """The turn's id, once the server has acknowledged the input."""
        return str(self.events[0]["response"]["id"]) if self.events else None

    @property
    def shown(self) -> str:
        return "".join(event.get("delta", "") for event in self.events)


class Journal:
    """One client with a session of its own, which it also renames, forks and branches."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._name = seed
        self.session = ""
        self.said: list[Said] = []
        # The last one is acknowledged, or may have been written.
        self.titles: list[str | None] = [None]
        self.forks: dict[str, str] = {}
        self.deleted: list[str] = []

    async def talk(self, wire: Wire) -> None:
        """Go on until the server is gone."""
        try:
            if not self.session:
                # Its titles are its own, so that it knows which one must be there.
                self.session = await wire.new_session(auto_title=False)
            while True:
                await self._act(wire)
        except aiohttp.ClientError:
            return

    async def _act(self, wire: Wire) -> None:
        ended = [said for said in self.said if said.ended is not None]
        match self._random.randrange(10):
            case 0:
                self.titles.append(f"title {len(self.titles)}")
                path = f"/v1/sessions/{self.session}"
                await wire.call("PATCH", path, {"title": self.titles[-1]})
                self.titles = self.titles[-1:]
            case 1 if ended:
                at = ended[-1].turn_id
                assert at is not None
                fork = await wire.call("POST", f"/v1/sessions/{self.session}/fork", {"at": at})
                self.forks[fork["id"]] = at
            case 2 if self.forks:
                fork_id, _ = self.forks.popitem()
                await wire.call("DELETE", f"/v1/sessions/{fork_id}")
                self.deleted.append(fork_id)
            case 3 | 4 if ended:
                await self._go_beside(wire, self._random.choice(ended))
            case _:
                text = f"{self._name}: {len(self.said)}"
                await self._submit(wire, f"/v1/sessions/{self.session}/turns", text, input=text)

    async def _go_beside(self, wire: Wire, said: Said) -> None:
        """A sibling of an ended turn: another reply, or the rest of a cut one."""
        assert said.ended is not None
        may_go_on = said.ended["status"] == "incomplete"
        how = self._random.choice(["regenerate", "continue"] if may_go_on else ["regenerate"])
        path = f"/v1/sessions/{self.session}/turns/{said.turn_id}/{how}"
        await self._submit(wire, path, said.text)

    async def _submit(self, wire: Wire, path: str, text: str, **fields: object) -> None:
        body = {
            **fields,
            "stream": True,
            "client_turn_id": f"{len(self.said)}",
            "max_output_tokens": self._random.randint(1, MAX_TOKENS),
        }
        said = Said(self.session, body["client_turn_id"], path, body, text)
        self.said.append(said)
        async with wire.http.post(path, json=body) as answer:
            assert answer.status == 200, await answer.text()
            async for event in events_of(answer):
                said.events.append(event)
        if said.events and said.events[-1]["type"] in ("response.completed", "response.incomplete"):
            said.ended = said.events[-1]["response"]

    # Afterwards.

    async def check(self, wire: Wire, *, since: int = 0) -> None:
        """Compare with what a server says that began after the last one was gone; `since` leaves
        out the submissions that were looked at before."""
        if not self.session:
            return
        session = await wire.call("GET", f"/v1/sessions/{self.session}")
        assert session["title"] in self.titles
        self.titles = [session["title"]]
        for fork_id, at in self.forks.items():
            assert (await wire.call("GET", f"/v1/sessions/{fork_id}"))["forked_from"] == at
        for fork_id in self.deleted:
            async with wire.http.get(f"/v1/sessions/{fork_id}") as answer:
                assert answer.status == 404
        turns = (await wire.call("GET", f"/v1/sessions/{self.session}/turns?all=true"))["data"]
        by_key = {turn["splice"]["client_turn_id"]: turn for turn in turns}
        assert len(by_key) == len(turns), "a submission was taken twice"
        assert session["active"] == []
        for said in self.said[since:]:
            stored = by_key.get(said.key)
            if said.turn_id is not None:
                assert stored is not None, f"the acknowledged {said} is lost"
                self._check_turn(said, stored)
                await _check_replay(wire, stored)
            elif stored is None:
                await self._repeat(wire, said)

    def _check_turn(self, said: Said, stored: Json) -> None:
        assert stored["id"] == said.turn_id
        assert stored["input"][0]["content"][0]["text"] == said.text
        text = reply_of(stored)
        num_tokens = len(text.split())
        assert text == text_of(num_tokens)
        if said.ended is not None:
            assert stored == said.ended
            assert said.is_cut or text == said.shown
            return
        # Either may be ahead: what was shown by a second, what was written by a network's length.
        assert said.shown.startswith(text) or text.startswith(said.shown)
        if stored["incomplete_details"] == {"reason": "interrupted"}:
            assert stored["status"] == "incomplete"
        else:
            assert num_tokens == stored["max_output_tokens"]
        said.ended, said.is_cut = stored, True

    async def _repeat(self, wire: Wire, said: Said) -> None:
        """What was never acknowledged can be sent again, and is then taken once."""
        again = {**said.body, "stream": False}
        first = await wire.call("POST", said.path, again)
        assert await wire.call("POST", said.path, again) == first
        said.events = [{"response": first}, {"delta": reply_of(first)}]
        said.ended = first


async def _check_replay(wire: Wire, stored: Json) -> None:
    path = f"/v1/sessions/{stored['conversation']['id']}/turns/{stored['id']}?stream=true"
    async with wire.http.get(path) as answer:
        events = [event async for event in events_of(answer)]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert "".join(event.get("delta", "") for event in events) == reply_of(stored)
    assert events[-1]["response"] == stored
