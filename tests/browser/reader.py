"""Somebody at the page: what they do, and what they see."""

from playwright.async_api import ConsoleMessage, Locator, Page, expect

from tests.support.page_front import PageFront

PATIENCE_MS = 15_000
expect.set_options(timeout=PATIENCE_MS)


class Reader:
    """A page, and the words for what is done on it."""

    def __init__(self, page: Page, front: PageFront) -> None:
        self.page = page
        self._front = front
        self.complaints: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._heard)

    def _heard(self, message: ConsoleMessage) -> None:
        # A server that is away is told of in the console too, and no fault of the page.
        if message.type == "error" and "Content Security Policy" in message.text:
            self.complaints.append(message.text)

    async def another_window(self) -> "Reader":
        """The same reader in a second window, at the same place."""
        other = Reader(await self.page.context.new_page(), self._front)
        # One list for both: whoever opened the first one looks at it.
        other.complaints = self.complaints
        await other.page.goto(self.page.url)
        # A window that is hidden is drawn once a second, and a click waits for that.
        await self.page.bring_to_front()
        return other

    async def open(self, path: str = "") -> None:
        await self.page.goto(self._front.url + path)
        await expect(self.box).to_be_visible()

    @property
    def box(self) -> Locator:
        return self.page.get_by_label("Message", exact=True)

    @property
    def replies(self) -> Locator:
        return self.page.locator(".prose")

    @property
    def banner(self) -> Locator:
        return self.page.locator(".banner")

    @property
    def rows(self) -> Locator:
        return self.page.get_by_role("navigation", name="Chats").locator(".row > a")

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    async def say(self, text: str) -> None:
        await self.box.fill(text)
        await self.box.press("Enter")

    async def sees(self, text: str) -> None:
        """The last reply, whole, and no word more."""
        await expect(self.replies.last).to_have_text(text)

    async def is_idle(self) -> None:
        """Nothing is being written."""
        await expect(self.button("Send")).to_be_visible()

    async def asks(self, text: str, answer: str) -> None:
        """A whole exchange, behind what is on screen."""
        await self.say(text)
        # Not a count of what is there before: another chat may still be on its way off the screen.
        await expect(self.page.locator(".bubble").last).to_have_text(text)
        await self.is_idle()
        await self.sees(answer)

    async def picks(self, menu: str, item: str) -> None:
        await self.button(menu).click()
        await self.page.get_by_role("menuitem", name=item, exact=True).click()
