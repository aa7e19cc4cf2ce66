/** The composition root: the only place where clocks, storage, network and window meet the rest. */
import { effect, untracked } from "@preact/signals";
import { render } from "preact";
import { Access } from "./access";
import { type Api, ApiError, createApi } from "./api";
import { type App, AppContext } from "./app";
import { Chat } from "./chat";
import { Page } from "./components/Page";
import { download } from "./download";
import { Drafts } from "./drafts";
import { trouble } from "./errors";
import { HealthWatch, isComing } from "./health";
import { Library } from "./library";
import { hashOf, placeIn } from "./route";
import { type RawSocket, Socket } from "./socket";
import { State } from "./state";
import { Streams } from "./streams";
import { Tabs } from "./tabs";
import { Warmth } from "./warmth";
import "./styles/index.css";

const HIDDEN_FLUSH_MS = 250;
const RESUME_AGAIN_MS = 2_000;
const QUIET_MS = 3_000;
/** Other clients don't tell of the chats that they make. */
const LOOK_EVERY_MS = 12_000;

function compose(): App {
  const base = new URL(".", document.baseURI);
  const state = new State();
  const access = new Access(storage(() => window.sessionStorage));
  const api = createApi(base.pathname, access);
  const drafts = new Drafts(storage(() => window.localStorage));
  const health = new HealthWatch(api, state, (run, ms) => setTimeout(run, ms));
  const navigate = (session: string | null, turn: string | null = null) => {
    const here = placeIn(location.hash);
    // Told again of where it is, the page would begin anew what is just being sent from there.
    if (here.session !== session || here.turn !== turn) location.hash = hashOf(session, turn);
  };
  const tabs = new Tabs(`splice ${base.pathname}`, (session) => chat.heard(session));
  const streams = new Streams({
    state,
    send: (frame) => socket.send(frame),
    schedule: onNextFrame,
    holds: () => isComing(state.health.peek()),
    onBegun: (turn) => tabs.tell(turn.session),
    onEnded: (turn) => {
      chat.turnEnded(turn);
      // The list of every window has its order from this.
      tabs.tell(turn.session);
    },
    onSession: (frame) => chat.happened(frame),
    onTrouble: (what) => chat.toast(what.title),
    later: (run) => setTimeout(run, RESUME_AGAIN_MS),
  });
  const socket = new Socket(
    () => openSocket(base, api, access),
    {
      onOpen: () => {
        streams.onOpen();
        chat.recover();
      },
      onFrame: (frame) => {
        heardAt = performance.now();
        streams.onFrame(frame);
      },
      onTooLarge: () => streams.onTooLarge(),
      onRefused: () => access.refused(access.key.peek(), 401),
      onLink: (link) => {
        state.link.value = link;
        if (link === "waiting") health.check();
      },
    },
    { set: (run, ms) => setTimeout(run, ms), clear: (timer) => clearTimeout(timer as number) },
    Math.random,
  );
  const library = new Library({
    state,
    api,
    health,
    navigate,
    toast: (text, action) => chat.toast(text, action),
    save: download,
    onChanged: (session) => tabs.tell(session),
    later: (run, ms) => setTimeout(run, ms),
  });
  const warmth = new Warmth({
    state,
    api,
    now: () => performance.now(),
    later: (run, ms) => setTimeout(run, ms),
  });
  const chat = new Chat({
    onTyping: (session) => warmth.typed(session),
    state,
    api,
    streams,
    drafts,
    health,
    library,
    navigate,
    newId,
    later: (run, ms) => setTimeout(run, ms),
  });
  health.check();
  let heardAt = performance.now();
  setInterval(() => {
    // A reply that stands still may wait for an engine that is being started again.
    const isQuiet = performance.now() - heardAt > QUIET_MS;
    if (isQuiet && state.live.peek().size > 0) health.check();
  }, QUIET_MS);
  effect(() => {
    if (state.health.value === "ready") untracked(() => streams.release());
  });
  effect(() => {
    if (access.asking.value !== null) untracked(() => socket.stop());
  });
  const logIn = async (key: string, keep: boolean) => {
    try {
      await api.checkKey(key);
    } catch (error) {
      return error instanceof ApiError ? trouble(error.code, error.message).title : String(error);
    }
    state.forget();
    access.accept(key, keep);
    begin({ chat, library, socket });
    return null;
  };
  const logOut = () => {
    access.logOut();
    streams.flush();
    drafts.forget();
    state.forget();
    navigate(null);
  };
  return { state, chat, library, socket, access, navigate, logIn, logOut };
}

function begin({ chat, library, socket }: Pick<App, "chat" | "library" | "socket">): void {
  const { session, turn } = placeIn(location.hash);
  chat.show(session, turn);
  void library.load();
  socket.start();
}

function follow(app: App): void {
  const { state } = app;
  window.addEventListener("hashchange", () => {
    const { session, turn } = placeIn(location.hash);
    app.chat.show(session, turn);
  });
  state.online.value = navigator.onLine;
  window.addEventListener("offline", () => {
    state.online.value = false;
    app.socket.nudge();
  });
  window.addEventListener("online", () => {
    state.online.value = true;
    app.socket.nudge();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState !== "visible") return;
    app.socket.nudge();
    void app.chat.refresh();
  });
  setInterval(() => {
    if (isLookedAt(app)) void app.chat.refresh(false);
  }, LOOK_EVERY_MS);
  begin(app);
}

/** Whether somebody sees the page, and there is a server to ask. */
function isLookedAt({ state, access }: App): boolean {
  const isSeen = document.visibilityState === "visible" && access.asking.peek() === null;
  return isSeen && state.online.peek() && state.health.peek() !== "unreachable";
}

/** Frames of the screen stop in a hidden page, replies do not: whichever comes first. */
function onNextFrame(run: () => void): void {
  let ran = false;
  const once = () => {
    if (!ran) run();
    ran = true;
  };
  requestAnimationFrame(once);
  setTimeout(once, HIDDEN_FLUSH_MS);
}

function socketUrl(base: URL): string {
  const url = new URL("v1/ws", base);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url.href;
}

/** With a key a socket needs a ticket, for it can carry no header and an address no key. */
function openSocket(base: URL, api: Api, access: Access): RawSocket | Promise<RawSocket> {
  const url = socketUrl(base);
  if (access.key.peek() === null) return new WebSocket(url);
  return api
    .ticket()
    .then((ticket) => new WebSocket(`${url}?ticket=${encodeURIComponent(ticket)}`));
}

function storage(open: () => Storage): Storage | null {
  try {
    return open();
  } catch {
    return null;
  }
}

/** crypto.randomUUID exists on https and localhost only; the page is also read over plain LAN. */
function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const root = document.getElementById("page");
if (root) {
  const app = compose();
  follow(app);
  render(
    <AppContext.Provider value={app}>
      <Page />
    </AppContext.Provider>,
    root,
  );
}
