"""The whole page without a mouse."""

import pytest
from playwright.async_api import expect

from tests.support.fake_engine import FakeReply

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_chat_is_begun_stopped_edited_and_left_by_keys_alone(front, read):
    reader = await read()
    press = reader.page.keyboard.press
    await expect(reader.box).to_be_focused()
    await reader.page.keyboard.type("First")
    await press("Enter")
    await reader.sees("Hello")
    await reader.is_idle()
    await expect(reader.box).to_be_focused()

    front.engine.replies.append(FakeReply(pieces=("One ", "two"), holds_after=1))
    await reader.page.keyboard.type("Second")
    await press("Enter")
    await reader.sees("One")
    await press("Escape")
    await expect(reader.page.get_by_text("Stopped")).to_be_visible()
    await reader.is_idle()

    await press("ArrowUp")
    editor = reader.page.get_by_role("textbox", name="Edit message")
    await expect(editor).to_be_focused()
    await expect(editor).to_have_value("Second")
    await press("Escape")
    await expect(reader.box).to_be_focused()
    await press("ArrowUp")
    await reader.page.keyboard.type(" and third")
    await press("Enter")
    await expect(reader.page.locator(".bubble").last).to_have_text("Second and third")
    await reader.is_idle()

    await press("Control+Shift+O")
    await expect(reader.page.get_by_text("Where shall we begin?")).to_be_visible()
    await expect(reader.box).to_be_focused()


async def test_the_list_and_the_search_are_walked_with_arrows(front, read):
    reader = await read()
    press = reader.page.keyboard.press
    for text in ("First", "Second"):
        await press("Control+Shift+O")
        await expect(reader.page.get_by_text("Where shall we begin?")).to_be_visible()
        await reader.asks(text, "Hello")
    await press("Control+k")
    search = reader.page.get_by_label("Search all chats")
    await expect(search).to_be_focused()
    await press("ArrowDown")
    await expect(reader.rows.nth(0)).to_be_focused()
    await press("ArrowDown")
    await expect(reader.rows.nth(1)).to_be_focused()
    await press("Enter")
    await expect(reader.page.locator("h1")).to_have_text("First")

    await reader.rows.nth(1).focus()
    await press("F2")
    await expect(reader.page.get_by_label("Name", exact=True)).to_be_focused()
    await reader.page.keyboard.type("Named")
    await press("Enter")
    await expect(reader.rows.nth(1)).to_have_text("Named")
    await reader.rows.nth(1).focus()
    await press("Tab")
    await press("Enter")
    await expect(reader.page.get_by_role("menuitem", name="Rename")).to_be_focused()
    await press("ArrowUp")
    await expect(reader.page.get_by_role("menuitem", name="Delete")).to_be_focused()
    await press("Escape")
    await expect(reader.page.get_by_role("menu")).to_have_count(0)

    await reader.rows.nth(1).focus()
    await press("Delete")
    await expect(reader.rows).to_have_text(["Second"])
    await expect(reader.button("Undo")).to_be_focused()
    await press("Escape")
    await expect(reader.page.locator(".toast")).to_have_count(0)
    # It was the chat on screen: there is a new one.
    await expect(reader.box).to_be_focused()
    await reader.rows.first.focus()
    await press("ArrowUp")
    await expect(search).to_be_focused()


async def test_a_deletion_is_taken_back_by_keys(front, read):
    reader = await read()
    press, undo = reader.page.keyboard.press, reader.button("Undo")
    await reader.asks("First", "Hello")
    await reader.button("New chat").first.click()
    await expect(reader.page.get_by_text("Where shall we begin?")).to_be_visible()
    await reader.asks("Second", "Hello")

    # The one on screen, from its menu above the conversation.
    await reader.button("More for this chat").focus()
    await press("Enter")
    await expect(reader.page.get_by_role("menuitem", name="Rename")).to_be_focused()
    await press("ArrowUp")
    await press("Enter")
    await expect(reader.rows).to_have_text(["First"])
    await expect(undo).to_be_focused()
    await expect(undo).to_have_accessible_description("Chat deleted")
    await press("Enter")
    await expect(reader.rows).to_have_text(["Second", "First"])
    await expect(reader.box).to_be_focused()

    # Another one, from the list.
    await reader.rows.nth(1).focus()
    await press("Delete")
    await expect(undo).to_be_focused()
    await press("Control+z")
    await expect(reader.rows).to_have_text(["Second", "First"])
    await expect(reader.page.locator(".toast")).to_have_count(0)
    await expect(reader.rows.first).to_be_focused()

    # By mouse the focus stays in the list, and the key does it as well.
    await reader.button("More for “First”").click(force=True)
    await reader.page.get_by_role("menuitem", name="Delete").click()
    await expect(undo).to_be_visible()
    await expect(reader.rows.first).to_be_focused()
    await press("Control+z")
    await expect(reader.rows).to_have_text(["Second", "First"])


async def test_a_note_stays_while_the_focus_is_on_it(front, read):
    reader = await read()
    await reader.page.clock.install()
    await reader.page.reload()
    await reader.asks("First", "Hello")
    await reader.rows.first.focus()
    await reader.page.keyboard.press("Delete")
    await expect(reader.button("Undo")).to_be_focused()
    await reader.page.clock.run_for(60_000)
    await expect(reader.button("Undo")).to_be_focused()
    await reader.box.focus()
    await reader.page.clock.run_for(12_000)
    await expect(reader.page.locator(".toast")).to_have_count(0)
    await expect(reader.box).to_be_focused()


async def test_the_keys_are_listed_and_a_dialog_gives_the_focus_back(front, read):
    reader = await read()
    opener = reader.button("Keyboard shortcuts")
    await opener.focus()
    await reader.page.keyboard.press("?")
    dialog = reader.page.get_by_role("dialog", name="Keyboard shortcuts")
    await expect(dialog).to_contain_text("Look for words in all chats")
    await reader.page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await expect(opener).to_be_focused()
    await reader.box.focus()
    await reader.page.keyboard.press("Control+/")
    await expect(dialog).to_be_visible()
    await reader.page.keyboard.press("Escape")
    await expect(reader.box).to_be_focused()
    await opener.focus()
    await reader.page.keyboard.press("/")
    await expect(reader.box).to_be_focused()
    await reader.page.keyboard.type("?")
    await expect(reader.box).to_have_value("?")
    await expect(dialog).to_have_count(0)
