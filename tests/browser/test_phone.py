"""The page on a phone."""

import pytest
from playwright.async_api import expect

from tests.support.fake_engine import FakeReply

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
WIDE = f"""```python
x = {"1 + " * 60}1
```

| a | b |
|---|---|
| `{"c" * 90}` | d |
"""
_SMALL = """() => [...document.querySelectorAll('button, a, label:has(input[type=radio])')]
  .filter((one) => one.checkVisibility({visibilityProperty: true}) && !one.closest('.prose'))
  .map((one) => [one.ariaLabel || one.textContent, one.getBoundingClientRect()])
  .filter(([, box]) => box.width > 1 && (box.width < 24 || box.height < 24))
  .map(([name, box]) => `${name} ${box.width}x${box.height}`)"""


async def test_the_list_is_a_drawer_that_closes_by_itself(front, read):
    reader = await read(**PHONE)
    await reader.asks("First", "Hello")
    await expect(reader.rows.first).not_to_be_visible()
    await reader.button("Show the chats").tap()
    await expect(reader.rows.first).to_be_visible()
    await expect(reader.button("Close the list").first).to_be_focused()
    await reader.page.get_by_role("button", name="New chat").first.tap()
    await expect(reader.rows.first).not_to_be_visible()
    await reader.button("Show the chats").tap()
    await reader.page.keyboard.press("Escape")
    await expect(reader.rows.first).not_to_be_visible()
    await expect(reader.button("Show the chats")).to_be_focused()


async def test_nothing_is_wider_than_the_screen_nor_too_small_for_a_finger(front, read):
    reader = await read(**PHONE)
    front.engine.replies.append(FakeReply(pieces=(WIDE,)))
    await reader.say("w" * 200)
    await reader.is_idle()
    await expect(reader.page.locator(".code")).to_be_visible()
    width = "document.scrollingElement.scrollWidth"
    assert await reader.page.evaluate(width) == 390
    assert await reader.page.locator(".thread").evaluate("one => one.scrollWidth") <= 390
    assert await reader.page.evaluate(_SMALL) == []
    await reader.button("Show the chats").tap()
    assert await reader.page.evaluate(_SMALL) == []
    await reader.page.locator(".row > .icon-button").first.tap()
    await reader.page.get_by_role("menuitem", name="Settings").tap()
    await expect(reader.page.get_by_role("dialog")).to_be_visible()
    assert await reader.page.evaluate(width) == 390
