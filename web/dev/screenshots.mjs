// Pictures of the page against the mock server (or, with PAGE_URL, against a real one).
//
//   npm run build && npm run screenshots [folder]
import { spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const HERE = dirname(fileURLToPath(import.meta.url));
const OUT = process.argv[2] ?? join(HERE, "../screenshots");
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const FLAGS =
  "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update " +
  "--disable-sync --no-first-run";
const SIZES = {
  desktop: { viewport: { width: 1280, height: 800 } },
  phone: {
    viewport: { width: 390, height: 844 },
    deviceScaleFactor: 2,
    hasTouch: true,
    isMobile: true,
  },
};

mkdirSync(OUT, { recursive: true });
const mock = process.env.PAGE_URL ? null : await startMock();
const address = process.env.PAGE_URL ?? mock.address;
const browser = await chromium.launch({ executablePath: CHROMIUM, args: FLAGS.split(" ") });
try {
  for (const [size, options] of Object.entries(SIZES)) {
    for (const colorScheme of ["light", "dark"])
      await story(`${size}-${colorScheme}`, { ...options, colorScheme });
  }
} finally {
  await browser.close();
  mock?.child.kill();
}

/** On any free port; its first line is its address. */
async function startMock() {
  const env = { ...process.env, MOCK_PORT: "0" };
  const child = spawn(process.execPath, [join(HERE, "mock-server.mjs")], { env });
  const address = await new Promise((resolve, reject) => {
    child.stdout.once("data", (line) => resolve(String(line).trim()));
    child.once("exit", () => reject(new Error("the mock server did not start")));
  });
  return { child, address };
}

/** Empty, in mid-reply, finished; then the states that are rarer. */
async function story(name, options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.on("console", (message) => {
    if (message.type() === "error") console.error(name, message.text());
  });
  page.on("pageerror", (error) => console.error(name, error));
  const shot = (state) => page.screenshot({ path: join(OUT, `${name}-${state}.png`) });
  const say = async (text) => {
    await page.getByLabel("Message", { exact: true }).fill(text);
    await page.keyboard.press("Enter");
  };
  const done = () => page.getByRole("button", { name: "Send" }).waitFor({ timeout: 60_000 });
  await page.goto(address);
  await page.waitForTimeout(500);
  await shot("empty");
  await say("Explain how tides work to a ten-year-old");
  await page.waitForTimeout(1_500);
  await shot("streaming");
  await done();
  await say("Show me a Python function that reverses a list, please");
  await page.waitForTimeout(300);
  await done();
  await page.waitForTimeout(300);
  await shot("finished");
  await page.evaluate(() => document.querySelector(".thread").scrollTo(0, 0));
  await page.waitForTimeout(200);
  await shot("scrolled");
  await say("Please die now");
  await page.getByText("Try again").waitFor();
  await page.waitForTimeout(200);
  await shot("failed");
  if (options.isMobile) {
    await page.getByRole("button", { name: "Show the chats" }).click();
    await page.waitForTimeout(400);
    await shot("drawer");
  }
  await context.close();
}
