"""A process that is going to be killed: `python -m tests.support.doomed_server URL`.

It ends one turn, begins a second, says how far it is on its output, and waits for the end.
"""

import asyncio
import sys

from sessions.database import Database
from sessions.manager import ManagerConfig, SessionManager
from sessions.store import Store
from tests.support import tiny_tokenizer as tiny
from tests.support.chat import Chat
from tests.support.clock import FakeClock
from tests.support.fake_engine import FakeEngine, FakeReply

RUNNER_ID = "doomed"


async def main(url: str) -> None:
    database, engine, clock = Database(url), FakeEngine(), FakeClock()
    await database.migrate()
    config = ManagerConfig(runner_id=RUNNER_ID, checkpoint_s=0)
    store = Store(database)
    async with SessionManager(store=store, engine=engine, clock=clock, config=config) as manager:
        manager.use_renderer(tiny.make_renderer(tiny.SMOLLM2))
        chat = await Chat.open(manager)
        first = await chat.say("one")
        engine.replies.append(FakeReply(pieces=("So", " far", " and on"), holds_after=2))
        second = await chat.submit("two")
        await engine.held(second.id)
        await chat.kept(second)
        print(chat.id, first.id, second.id, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
