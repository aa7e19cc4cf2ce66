"""axe finds nothing, in each state of the page, in the dark and in the light, large and small."""

import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from model.errors import EngineDiedError
from tests.support.fake_engine import FakeReply

pytestmark = pytest.mark.asyncio(loop_scope="session")

AXE = Path(__file__).resolve().parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
CODE = """Some **words**

```python
def f():
    return 'x'  # 1
```

| a | b |
|---|---|
| 1 | 2 |
"""
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
_RUN = """async () => (await axe.run()).violations.map(
  (found) => `${found.id}: ${found.nodes.map((node) => node.target.join(' ')).join(', ')}`)"""


async def check(reader, state):
    # By the debugger, for the page's own policy lets no other script in.
    if not await reader.page.evaluate("'axe' in window"):
        await reader.page.evaluate(AXE.read_text(encoding="utf-8") + ";0")
    assert await reader.page.evaluate(_RUN) == [], state


@pytest.mark.parametrize("size", ["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing(front, read, scheme, size):
    phone = PHONE if size == "phone" else {}
    reader = await read(color_scheme=scheme, **phone)
    await check(reader, "empty")
    front.engine.replies.append(FakeReply(pieces=(CODE, "more"), holds_after=1))
    await reader.say("Some code")
    await expect(reader.page.locator(".hljs-keyword").first).to_be_visible()
    await check(reader, "in mid-reply")
    front.engine.let_go()
    await reader.is_idle()
    await reader.button("Regenerate").click()
    await expect(reader.page.get_by_text("2 / 2")).to_be_visible()
    await reader.is_idle()
    await check(reader, "ended, with two versions")
    front.engine.replies.append(FakeReply(pieces=("So",), error=EngineDiedError("it ended")))
    await reader.say("Fail")
    await expect(reader.page.get_by_role("alert")).to_be_visible()
    await check(reader, "failed")
    await reader.picks("More for this chat", "Settings")
    await check(reader, "settings")
    await reader.page.keyboard.press("Escape")
    await reader.button("More for this chat").click()
    await check(reader, "menu")
    await reader.page.keyboard.press("Escape")
    if size == "phone":
        await reader.button("Show the chats").click()
    await reader.page.get_by_label("Search all chats").fill("code")
    await expect(reader.page.locator(".hit mark").first).to_be_visible()
    await check(reader, "search")
    await reader.page.get_by_label("Search all chats").press("Escape")
    await reader.rows.first.focus()
    await reader.page.keyboard.press("?")
    await check(reader, "keys")
    await reader.page.keyboard.press("Escape")
    await front.stop()
    await expect(reader.banner).to_be_visible()
    await reader.rows.first.focus()
    await reader.page.keyboard.press("Delete")
    await expect(reader.page.locator(".toast")).to_be_visible()
    await check(reader, "away")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_where_nothing_is_there_yet(front, read, scheme):
    reader = await read(color_scheme=scheme)
    await reader.asks("First", "Hello")
    await reader.page.route("**/turns?all=true", lambda route: route.abort())
    await reader.page.reload()
    await expect(reader.page.get_by_role("alert")).to_be_visible()
    await check(reader, "a chat that could not be read")
    await reader.page.unroute_all()
    # Asked, and never answered.
    await reader.page.route("**/turns?all=true", lambda _route: None)
    await reader.page.reload()
    await expect(reader.page.get_by_label("Loading the conversation")).to_be_visible()
    await check(reader, "loading")
    refusal = {"error": {"message": "no key", "code": "invalid_api_key"}}
    await reader.page.route(
        re.compile(r"/v1/sessions\?"), lambda route: route.fulfill(status=401, json=refusal)
    )
    await reader.page.reload()
    await expect(reader.page.get_by_label("API key")).to_be_focused()
    await check(reader, "log in")
