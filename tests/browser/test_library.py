"""Chats as a whole: found, named, pinned, set, deleted and brought back, taken out and in."""

import json
import re

import pytest
from playwright.async_api import expect

from tests.support.fake_engine import FakeReply

pytestmark = pytest.mark.asyncio(loop_scope="session")


_HIDE = "Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true})"
_SHOW = "delete document.visibilityState; document.dispatchEvent(new Event('visibilitychange'))"


async def _imports(reader, file):
    async with reader.page.expect_file_chooser() as coming:
        await reader.button("Import a chat").click()
    await (await coming.value).set_files(file)


def _read(file):
    return json.loads(file.read_text(encoding="utf-8"))


async def test_words_are_found_and_lead_to_where_they_were_said(front, read):
    reader = await read(viewport={"width": 1000, "height": 420})
    await reader.asks("Where are the fjords?", "Hello")
    for number in range(4):
        await reader.asks(f"Question {number}", "Hello")
    await reader.button("New chat").first.click()
    await reader.asks("Something else", "Hello")
    search = reader.page.get_by_label("Search all chats")
    await search.fill("fjord")
    hit = reader.page.locator(".hit").first
    await expect(hit.locator("mark")).to_have_text("fjords")
    await reader.page.locator(".hit:has(.hit-words)").click()
    await expect(reader.page.locator(".sought .bubble")).to_have_text("Where are the fjords?")
    await expect(reader.page.locator(".sought .bubble")).to_be_in_viewport()
    await search.fill("glacier")
    await expect(reader.page.get_by_text("Nothing has “glacier” in it.")).to_be_visible()
    await search.press("Escape")
    await expect(reader.rows).to_have_text(["Something else", "Where are the fjords?"])


async def test_a_chat_is_renamed_and_pinned_in_every_window(front, read):
    reader = await read()
    await reader.asks("First", "Hello")
    await reader.button("New chat").first.click()
    await expect(reader.page.get_by_text("Where shall we begin?")).to_be_visible()
    await reader.asks("Second", "Hello")
    other = await reader.another_window()
    await reader.page.get_by_role("link", name="First").click()
    await reader.picks("More for this chat", "Rename")
    await reader.page.get_by_label("Name", exact=True).fill("The oldest")
    await reader.page.keyboard.press("Enter")
    await expect(reader.page.locator("h1")).to_have_text("The oldest")
    await reader.picks("More for this chat", "Pin")
    for window in (reader, other):
        await expect(window.rows).to_have_text(["The oldest", "Second"])
        await expect(window.page.get_by_role("heading", name="Pinned")).to_be_visible()


async def test_the_list_marks_a_reply_that_was_asked_for_elsewhere(front, read):
    other = await read()
    front.engine.replies.append(FakeReply(pieces=("One ", "two"), holds_after=1))
    await other.say("Count")
    await other.sees("One")
    # They share nothing but the server.
    reader = await read()
    mark = reader.rows.first.get_by_role("img", name="A reply is being written")
    await expect(mark).to_be_visible()
    await reader.rows.first.click()
    await reader.sees("One")
    front.engine.let_go()
    await reader.sees("One two")
    await expect(mark).to_have_count(0)


async def test_the_list_follows_other_clients_by_itself_while_it_is_seen(front, read):
    reader = await read()
    await reader.page.clock.install()
    await reader.page.reload()
    await expect(reader.page.get_by_text("Your chats will be listed here.")).to_be_visible()
    api = reader.page.request
    made = await api.post(front.url + "v1/sessions", data={})
    await reader.page.clock.run_for(12_000)
    await expect(reader.rows).to_have_text(["Untitled chat"])
    session = (await made.json())["id"]
    await api.patch(front.url + f"v1/sessions/{session}", data={"title": "Tides"})
    asked = []
    await reader.page.route(re.compile(r"/v1/sessions\?"), lambda route: asked.append(route))
    await reader.page.evaluate(_HIDE)
    # Not so long that the socket takes its peer for gone, and reads the list on coming back.
    await reader.page.clock.run_for(12_000)
    assert asked == []
    await reader.page.unroute_all()
    await reader.page.evaluate(_SHOW)
    await expect(reader.rows).to_have_text(["Tides"])


async def test_a_deleted_chat_comes_back_by_undo(front, read):
    reader = await read()
    await reader.asks("First", "Hello")
    await reader.picks("More for this chat", "Delete")
    await expect(reader.rows).to_have_count(0)
    await expect(reader.page.get_by_text("Where shall we begin?")).to_be_visible()
    await reader.button("Undo").click()
    await expect(reader.rows).to_have_text(["First"])
    await expect(reader.replies).to_have_text(["Hello"])


async def test_settings_hold_for_the_next_turn_and_are_there_again(front, read):
    reader = await read()
    await reader.asks("First", "Hello")
    await reader.button("Settings of this chat").click()
    await reader.page.get_by_label("Instructions").fill("Be brief.")
    await reader.page.get_by_label("Temperature").fill("0.3")
    await reader.page.get_by_label("Reasoning in replies").select_option("keep")
    await reader.button("Save").click()
    await expect(reader.page.get_by_role("dialog")).to_have_count(0)
    await reader.asks("Second", "Hello")
    assert front.engine.requests[-1].params.temperature == 0.3
    await reader.page.reload()
    await reader.button("Settings of this chat").click()
    await expect(reader.page.get_by_label("Instructions")).to_have_value("Be brief.")
    await expect(reader.page.get_by_label("Temperature")).to_have_value("0.3")
    await expect(reader.page.get_by_label("Reasoning in replies")).to_have_value("keep")


async def test_settings_of_another_window_are_not_overwritten_unseen(front, read):
    reader = await read()
    await reader.asks("First", "Hello")
    await reader.button("Settings of this chat").click()
    session = reader.page.url.rpartition("/")[2]
    changed = await reader.page.request.patch(
        front.url + f"v1/sessions/{session}", data={"instructions": "Be long."}
    )
    assert changed.ok
    await reader.page.get_by_label("Instructions").fill("Be brief.")
    await reader.button("Save").click()
    await expect(reader.page.get_by_role("alert")).to_contain_text("changed in another window")
    await reader.button("Save mine all the same").click()
    await expect(reader.page.get_by_role("dialog")).to_have_count(0)
    kept = await (await reader.page.request.get(front.url + f"v1/sessions/{session}")).json()
    assert kept["instructions"] == "Be brief."


async def test_a_chat_goes_out_as_a_file_and_comes_in_again(front, read, tmp_path):
    reader = await read()
    front.engine.replies.append(FakeReply(pieces=("The whole reply",)))
    await reader.asks("First", "The whole reply")
    before = reader.page.url
    async with reader.page.expect_download() as coming:
        await reader.picks("More for this chat", "Export as JSON")
    file = tmp_path / "chat.json"
    download = await coming.value
    assert download.suggested_filename == "First.json"
    await download.save_as(file)
    assert _read(file)["object"] == "splice.export"
    await _imports(reader, file)
    await expect(reader.page).not_to_have_url(before)
    await expect(reader.replies).to_have_text(["The whole reply"])
    await expect(reader.rows).to_have_count(2)
    await expect(reader.banner).to_contain_text("The loaded model has not read this chat yet.")
    nonsense = {"name": "chat.json", "mimeType": "application/json", "buffer": b"no chat"}
    toast = reader.page.locator(".toast")
    for _ in range(2):
        await _imports(reader, nonsense)
        await expect(toast).to_contain_text("not a chat exported as JSON")
    # One button leads to the file, which a reader of the screen is told of.
    await expect(
        reader.page.get_by_role("button", name=re.compile("Import|Exported|Choose"))
    ).to_have_count(1)
    await expect(toast).to_have_count(1)


async def test_a_list_that_could_not_be_read_is_read_again(front, read):
    reader = await read()
    await reader.page.route(re.compile(r"/v1/sessions\?"), lambda route: route.abort())
    await reader.page.reload()
    note = reader.page.locator(".list-note")
    await expect(note).to_contain_text("The server can't be reached.")
    await reader.page.unroute_all()
    await note.get_by_role("button", name="Try again").click()
    await expect(note).to_have_text("Your chats will be listed here.")
