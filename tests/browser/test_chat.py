"""A conversation on the page, whatever comes between."""

import re

import pytest
from playwright.async_api import expect

from model.errors import EngineDiedError
from model.messages import FinishReason
from tests.support.fake_engine import FakeReply

pytestmark = pytest.mark.asyncio(loop_scope="session")

HELD = FakeReply(pieces=("One ", "two ", "three"), holds_after=2)


async def test_a_message_is_answered_and_the_chat_is_listed_under_its_words(front, read):
    reader = await read()
    await reader.asks("What is the tide?", "Hello")
    await expect(reader.rows).to_have_text(["What is the tide?"])
    await expect(reader.page).to_have_title("What is the tide? · Splice")
    await expect(reader.page.locator(".metrics")).to_contain_text("tokens reused")


async def test_stop_keeps_what_was_written_and_continue_goes_on_with_it(front, read):
    reader = await read()
    front.engine.replies.append(HELD)
    await reader.say("Count")
    await reader.sees("One two")
    await reader.button("Stop").click()
    await expect(reader.page.get_by_text("Stopped")).to_be_visible()
    await reader.is_idle()
    front.engine.replies.append(FakeReply(pieces=("three",)))
    await reader.button("Continue").click()
    await reader.sees("One two three")
    await expect(reader.page.get_by_text("2 / 2")).to_be_visible()


async def test_a_reload_in_mid_reply_loses_and_repeats_nothing(front, read):
    reader = await read()
    front.engine.replies.append(HELD)
    await reader.say("Count")
    await reader.sees("One two")
    await reader.page.reload()
    await reader.sees("One two")
    front.engine.let_go()
    await reader.sees("One two three")
    await reader.is_idle()
    assert await reader.replies.count() == 1


@pytest.mark.parametrize("end", ["stop", "crash"])
async def test_a_restart_of_the_server_in_mid_reply_keeps_it_and_lets_it_go_on(front, read, end):
    reader = await read()
    front.engine.replies.append(HELD)
    await reader.say("Count")
    await reader.sees("One two")
    await getattr(front, end)()
    await expect(reader.banner).to_contain_text("Connection lost")
    await front.start()
    await expect(reader.banner).to_have_count(0)
    await expect(reader.button("Continue")).to_be_visible()
    await reader.sees("One two")
    front.engine.replies.append(FakeReply(pieces=("three",)))
    await reader.button("Continue").click()
    await reader.sees("One two three")


async def test_a_message_waits_for_a_server_that_is_away(front, read):
    reader = await read()
    await reader.asks("First", "Hello")
    await front.stop()
    await reader.say("Second")
    await expect(reader.page.get_by_text("Will be sent as soon as")).to_be_visible()
    await front.start()
    await expect(reader.replies).to_have_text(["Hello", "Hello"])
    await reader.is_idle()


async def test_a_restart_of_the_engine_is_told_and_messages_wait_for_it(front, read):
    reader = await read()
    front.engine.is_up = False
    await reader.page.reload()
    await expect(reader.banner).to_contain_text("The engine is restarting")
    await reader.say("Are you there?")
    await expect(reader.page.get_by_text("Will be sent as soon as")).to_be_visible()
    front.engine.is_up = True
    await reader.sees("Hello")
    await expect(reader.banner).to_have_count(0)


async def test_a_failed_reply_can_be_tried_again(front, read):
    reader = await read()
    front.engine.replies.append(FakeReply(pieces=("So",), error=EngineDiedError("it ended")))
    await reader.say("Hi")
    await expect(reader.page.get_by_role("alert")).to_contain_text("The engine stopped")
    await reader.button("Try again").click()
    await reader.sees("Hello")
    await expect(reader.page.get_by_role("alert")).to_have_count(0)


async def test_a_message_that_is_too_long_alone_is_told_from_a_full_conversation(front, read):
    reader = await read()
    await reader.say("many words " * 1_000)
    alert = reader.page.get_by_role("alert")
    await expect(alert).to_contain_text("This message is too long by itself.")
    await expect(alert).to_contain_text(
        re.compile(r"has \d+,\d{3} tokens; the context holds 4,096")
    )
    await expect(alert).to_contain_text("Shorten it and send it again.")
    await alert.get_by_role("button", name="Edit message").click()
    await reader.asks("First", "Hello")
    await reader.say("many words " * 1_000)
    await expect(alert).to_contain_text("This message is too long by itself.")
    await alert.get_by_role("button", name="Edit message").click()
    # What fits once does not fit twice.
    await reader.asks("many words " * 400 + "end", "Hello")
    await reader.say("many words " * 400)
    await expect(alert).to_contain_text("This conversation is full.")
    await expect(alert).to_contain_text("Start a new chat, or fork from an earlier turn.")


async def test_a_reply_cut_at_its_limit_goes_on(front, read):
    reader = await read()
    front.engine.replies.append(FakeReply(pieces=("One ",), reason=FinishReason.LENGTH))
    await reader.say("Count")
    await expect(reader.page.get_by_text("Cut off at the length limit")).to_be_visible()
    front.engine.replies.append(FakeReply(pieces=("two",)))
    await reader.button("Continue").click()
    await reader.sees("One two")


async def test_two_windows_show_one_conversation_as_it_grows(front, read):
    first = await read()
    await first.asks("Hi", "Hello")
    second = await first.another_window()
    await second.sees("Hello")
    front.engine.replies.append(HELD)
    await first.say("Count")
    await second.sees("One two")
    await expect(second.button("Stop")).to_be_visible()
    front.engine.let_go()
    for reader in (first, second):
        await expect(reader.replies).to_have_text(["Hello", "One two three"])
        await reader.is_idle()
    await second.asks("Once more", "Hello")
    await expect(first.replies).to_have_text(["Hello", "One two three", "Hello"])


async def test_readers_who_share_nothing_but_the_server_see_one_conversation(front, read):
    first = await read()
    await first.asks("Hi", "Hello")
    second = await read()
    await second.page.goto(first.page.url)
    await second.sees("Hello")
    front.engine.replies.append(HELD)
    await first.say("Count")
    await second.sees("One two")
    await expect(second.button("Stop")).to_be_visible()
    front.engine.let_go()
    await expect(second.replies).to_have_text(["Hello", "One two three"])
    await first.picks("More for this chat", "Rename")
    await first.page.get_by_label("Name", exact=True).fill("Counting")
    await first.page.keyboard.press("Enter")
    await expect(second.page.locator("h1")).to_have_text("Counting")


async def test_an_edited_message_makes_a_branch_and_both_stay(front, read):
    reader = await read()
    await reader.asks("First", "Hello")
    await reader.asks("Second", "Hello")
    await reader.page.locator(".said").first.hover()
    await reader.button("Edit message").first.click()
    editor = reader.page.get_by_role("textbox", name="Edit message")
    await editor.fill("Other")
    front.engine.replies.append(FakeReply(pieces=("A branch",)))
    await editor.press("Enter")
    await expect(reader.replies).to_have_text(["A branch"])
    await reader.is_idle()
    async with reader.page.expect_response("**/head"):
        await reader.button("Version before").click()
    await expect(reader.replies).to_have_text(["Hello", "Hello"])
    await expect(reader.page.locator(".bubble")).to_have_text(["First", "Second"])
    # The branch on screen is the one that is gone on with, in every window and after a reload.
    await reader.page.reload()
    await expect(reader.replies).to_have_text(["Hello", "Hello"])
    await reader.button("Next version").click()
    await expect(reader.replies).to_have_text(["A branch"])


async def test_a_fork_goes_on_in_a_chat_of_its_own(front, read):
    reader = await read()
    await reader.asks("First", "Hello")
    before = reader.page.url
    await reader.button("Fork: continues without recomputing").click()
    # A fork has the mark of one in the list.
    await expect(reader.page.locator(".row > a[aria-current] > .icon")).to_be_visible()
    # Its state is its origin's as yet: that there is none would be wrong.
    await expect(reader.page.locator("[aria-current] .place-dot, .topbar .place")).to_have_count(0)
    await reader.asks("Second", "Hello")
    await expect(reader.page.locator(".topbar .place")).to_be_visible()
    await expect(reader.replies).to_have_text(["Hello", "Hello"])
    await reader.page.goto(before)
    await expect(reader.replies).to_have_text(["Hello"])


async def test_a_chat_of_another_model_says_so_until_its_next_turn(front, read):
    reader = await read()
    await reader.asks("First", "Hello")
    front.engine.becomes(model_id="another-model", fingerprint="another")
    await reader.page.reload()
    await expect(reader.banner).to_contain_text("Written with fake-model")
    mark = reader.page.get_by_role("img", name="Of another model")
    await expect(mark).to_be_visible()
    await reader.asks("Second", "Hello")
    await expect(reader.banner).to_have_count(0)
    await expect(mark).to_have_count(0)


async def test_code_gets_its_colours_and_is_copied(front, read):
    reader = await read(permissions=["clipboard-read", "clipboard-write"])
    code = 'def hello():\n    return "tide"'
    front.engine.replies.append(FakeReply(pieces=("```python\n", code, "\n```\n")))
    await reader.say("Some code")
    await expect(reader.page.locator(".code .hljs-keyword").first).to_have_text("def")
    await expect(reader.page.locator(".code .hljs-string")).to_have_text('"tide"')
    await reader.button("Copy code").click()
    await expect(reader.page.locator(".code-copy")).to_have_text("Copied")
    assert await reader.page.evaluate("navigator.clipboard.readText()") == code


async def test_without_a_network_the_page_says_so(front, read):
    reader = await read()
    await reader.page.context.set_offline(True)
    await expect(reader.banner).to_contain_text("You are offline")
    await reader.page.context.set_offline(False)
    await expect(reader.banner).to_have_count(0)


async def test_a_chat_that_is_no_more_leads_to_a_new_one(front, read):
    reader = await read()
    await reader.open("#/c/conv_none")
    await expect(reader.page.get_by_text("This conversation no longer exists.")).to_be_visible()
    await reader.page.get_by_role("alert").get_by_role("button", name="New chat").click()
    await expect(reader.page).to_have_url(re.compile(r"#/$"))
    await reader.asks("Hi", "Hello")
