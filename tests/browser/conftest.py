"""One Chromium for all browser tests, a server and a reader of its own for each.

`make test` leaves this folder out where no Chromium is installed, and says so.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tests.browser.reader import Reader
from tests.support import tiny_tokenizer as tiny
from tests.support.page_front import PageFront

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
_NAMES = ("chromium", "chromium-browser", "google-chrome")
# Far beyond what a busy machine needs; a test that hangs has its own timeout.
_PATIENCE_MS = 15_000


def chromium() -> str:
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    assert found, "no Chromium: install it, or set CHROMIUM to its path"
    return found


@pytest.fixture(scope="session")
def renderer():
    return tiny.make_renderer(tiny.SMOLLM2)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def front(tmp_path, renderer) -> AsyncIterator[PageFront]:
    front = PageFront(tmp_path, renderer)
    await front.start()
    yield front
    await front.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def read(browser, front):
    """Opens the page as a new reader would; at the end nothing may have gone wrong unseen."""
    async with AsyncExitStack() as stack:
        readers: list[Reader] = []

        async def opened(**options: Any) -> Reader:
            context = await browser.new_context(reduced_motion="reduce", **options)
            context.set_default_timeout(_PATIENCE_MS)
            stack.push_async_callback(context.close)
            reader = Reader(await context.new_page(), front)
            readers.append(reader)
            await reader.open()
            return reader

        yield opened
        for reader in readers:
            assert reader.complaints == []
