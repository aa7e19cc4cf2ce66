/** The page's logic without a page: state, chat and library over a server that is a few lists. */
import { type Api, ApiError } from "../src/api";
import { Chat } from "../src/chat";
import { Drafts } from "../src/drafts";
import { HealthWatch } from "../src/health";
import { Library } from "../src/library";
import type { ClientFrame, Hit, Response, Session } from "../src/protocol";
import { State } from "../src/state";
import { Streams } from "../src/streams";
import { FakeTimers } from "./fakes";
import { session } from "./samples";

export { last } from "./fakes";

/** What the fake server has, and what it was asked. */
export interface Server {
  sessions: Session[];
  turns: Response[];
  deleted: string[];
  restored: string[];
  changes: unknown[];
  heads: string[];
  hits: Hit[];
  imports: unknown[];
  forks: unknown[];
  down: boolean;
  /** How many sessions a page of the list has. */
  limit: number;
}

function fakeApi(server: Server): Api {
  const up = () => {
    if (server.down) throw new ApiError("offline", "", 0);
  };
  return {
    async listSessions(after) {
      up();
      const from = server.sessions.findIndex((one) => one.id === after) + 1;
      const data = server.sessions.slice(from, from + server.limit);
      const has_more = from + data.length < server.sessions.length;
      return { data, has_more, last_id: data.at(-1)?.id ?? null };
    },
    async getSession(id) {
      up();
      return server.sessions.find((one) => one.id === id) ?? session({ id });
    },
    async createSession({ title = null, instructions = null }) {
      up();
      const made = session({ id: "conv_new", title, instructions });
      server.sessions.push(made);
      return made;
    },
    async deleteSession(id) {
      up();
      server.deleted.push(id);
    },
    async changeSession(id, change) {
      up();
      server.changes.push(change);
      const index = server.sessions.findIndex((one) => one.id === id);
      const changed = { ...session({ id }), ...server.sessions[index], ...change } as Session;
      server.sessions[index] = changed;
      return changed;
    },
    async restoreSession(id) {
      up();
      server.restored.push(id);
      return session({ id });
    },
    async warm() {
      up();
    },
    async setHead(id, turn) {
      up();
      server.heads.push(turn);
      return session({ id, head: turn });
    },
    async search() {
      up();
      return { data: server.hits, has_more: false, last_id: null };
    },
    async exportSession(id, format) {
      up();
      return new Blob([`${id} ${format}`]);
    },
    async importSession(file) {
      up();
      server.imports.push(file);
      return session({ id: "conv_in" });
    },
    async listTurns() {
      up();
      return server.turns;
    },
    async fork(...asked) {
      up();
      server.forks.push(asked);
      return session({ id: "conv_fork", forked_from: "resp_1" });
    },
    async checkKey() {
      up();
    },
    async ticket() {
      return "wst_1";
    },
    async readiness() {
      return { ready: true, state: "ready", detail: null };
    },
  };
}

export function setUp() {
  const server: Server = {
    ...{ sessions: [session()], turns: [], deleted: [], restored: [], changes: [], heads: [] },
    ...{ hits: [], imports: [], forks: [], down: false, limit: 50 },
  };
  const state = new State();
  const api = fakeApi(server);
  const sent: ClientFrame[] = [];
  const timers = new FakeTimers();
  const streams = new Streams({
    state,
    // What is watched is the streams' test's business.
    send: (frame) => frame.type.startsWith("session.") || sent.push(frame) > 0,
    holds: () => false,
    schedule: (flush) => flush(),
    onBegun: () => undefined,
    onEnded: () => undefined,
    onSession: (frame) => chat.happened(frame),
    onTrouble: () => undefined,
    later: () => undefined,
  });
  const drafts = new Drafts(null);
  const went: (string | null)[] = [];
  const saved: string[] = [];
  const told: string[] = [];
  const health = new HealthWatch(api, state, () => undefined);
  const navigate = (to: string | null) => {
    went.push(to);
    chat.show(to);
  };
  const library = new Library({
    state,
    api,
    health,
    navigate,
    toast: (text, action) => chat.toast(text, action),
    save: (_, name) => void saved.push(name),
    onChanged: (session) => void told.push(session),
    later: (run, ms) => timers.set(run, ms),
  });
  let ids = 0;
  const chat: Chat = new Chat({
    onTyping: () => undefined,
    state,
    api,
    streams,
    drafts,
    health,
    library,
    navigate,
    newId: () => `turn-${++ids}`,
    later: (run, ms) => timers.set(run, ms),
  });
  return { server, state, chat, library, sent, timers, went, saved, told };
}

/** Lets everything that waits for an answer of the fake server go on. */
export const settled = () => new Promise((resolve) => setTimeout(resolve));
