"""`make screenshots`: the pictures in docs/, of the real server with the embedded model.

What it says and how fast is what it said and how fast it was on the machine that took them.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright, expect

from tests.browser.conftest import FLAGS, chromium
from tests.support.live_server import LiveServer

DOCS = Path(__file__).resolve().parents[2] / "docs"
DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "has_touch": True,
    "is_mobile": True,
}
# Replies that end before the picture does, and the same each time.
DRAWN = {"temperature": 0.0, "max_output_tokens": 160, "repetition_penalty": 1.1}
CHATS = (
    ("Packing for a hike", "What should I pack for a day's hike?", True),
    ("A name for a boat", "Suggest a name for a small sailing boat.", False),
    ("Sourdough, first try", "Why is my sourdough bread so flat?", False),
)
QUESTION, NEXT = "What is the capital of Norway?", "What is it known for?"
CODE = "Write a short Python function that reverses a string, with an example."
_REPLY_MS = 120_000


async def _chat(page: Page, title: str, question: str, *, pinned: bool) -> str:
    sessions = page.request
    made = await sessions.post(
        "v1/sessions", data={"title": title, "pinned": pinned, "sampling": DRAWN}
    )
    session = (await made.json())["id"]
    await sessions.post(f"v1/sessions/{session}/turns", data={"input": question}, timeout=_REPLY_MS)
    return str(session)


async def _ended(page: Page, replies: int) -> None:
    await expect(page.locator(".metrics")).to_have_count(replies, timeout=_REPLY_MS)
    # The colours of code come a moment behind it.
    await page.wait_for_load_state("networkidle")


async def _opened(browser: Browser, url: str, **options: Any) -> Page:
    context = await browser.new_context(base_url=url, reduced_motion="reduce", **options)
    page = await context.new_page()
    await page.goto("./")
    await expect(page.get_by_label("Message", exact=True)).to_be_visible()
    return page


async def _say(page: Page, text: str, replies: int) -> None:
    await page.get_by_label("Message", exact=True).fill(text)
    await page.keyboard.press("Enter")
    await _ended(page, replies)


async def _pictures(browser: Browser, url: str) -> None:
    page = await _opened(browser, url, color_scheme="light", **DESKTOP)
    for title, question, pinned in CHATS:
        await _chat(page, title, question, pinned=pinned)
    session = await _chat(page, "The capital of Norway", QUESTION, pinned=False)
    await page.goto(f"./#/c/{session}")
    await page.reload()
    await _ended(page, 1)
    await _say(page, NEXT, 2)
    await page.screenshot(path=DOCS / "page.png")

    dark = await _opened(browser, url, color_scheme="dark", **DESKTOP)
    session = await _chat(dark, "Reverse a string", CODE, pinned=False)
    await dark.goto(f"./#/c/{session}")
    await dark.reload()
    await _ended(dark, 1)
    await dark.get_by_role("button", name="Regenerate").click()
    await expect(dark.get_by_text("2 / 2")).to_be_visible(timeout=_REPLY_MS)
    await _ended(dark, 1)
    await dark.mouse.move(0, 0)
    await dark.screenshot(path=DOCS / "page-dark.png")

    await page.get_by_role("button", name="Settings of this chat").click()
    await page.get_by_label("Instructions").fill("Answer a child of ten, in plain words.")
    await page.screenshot(path=DOCS / "page-settings.png")

    phone = await _opened(browser, url, color_scheme="light", **PHONE)
    await phone.goto(page.url)
    await phone.reload()
    await _ended(phone, 2)
    await phone.screenshot(path=DOCS / "page-phone.png")


async def main() -> None:
    """Start the server, take the pictures."""
    with tempfile.TemporaryDirectory() as folder, LiveServer(Path(folder)) as server:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
            await _pictures(browser, server.url)
            await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
