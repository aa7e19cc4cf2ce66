import { describe, expect, it } from "vitest";
import { type Api, ApiError } from "../src/api";
import { Chat } from "../src/chat";
import { Drafts } from "../src/drafts";
import { HealthWatch } from "../src/health";
import type { ClientFrame, Response, Session } from "../src/protocol";
import { State } from "../src/state";
import { Streams } from "../src/streams";
import { FakeTimers, last } from "./fakes";
import { CONVERSATION, ended, response, session } from "./samples";

interface Server {
  sessions: Session[];
  turns: Response[];
  deleted: string[];
  forks: unknown[];
  down: boolean;
}

function fakeApi(server: Server): Api {
  const up = () => {
    if (server.down) throw new ApiError("offline", "", 0);
  };
  return {
    async listSessions() {
      up();
      return { data: server.sessions, has_more: false, last_id: null };
    },
    async getSession(id) {
      up();
      return server.sessions.find((one) => one.id === id) ?? session({ id });
    },
    async createSession(title) {
      up();
      const made = session({ id: "conv_new", title });
      server.sessions.push(made);
      return made;
    },
    async deleteSession(id) {
      up();
      server.deleted.push(id);
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

function setUp() {
  const server: Server = { sessions: [session()], turns: [], deleted: [], forks: [], down: false };
  const state = new State();
  const api = fakeApi(server);
  const sent: ClientFrame[] = [];
  const timers = new FakeTimers();
  const streams = new Streams({
    state,
    send: (frame) => sent.push(frame) > 0,
    holds: () => false,
    schedule: (flush) => flush(),
    onEnded: () => undefined,
    onTrouble: () => undefined,
    later: () => undefined,
  });
  const drafts = new Drafts(null);
  const went: (string | null)[] = [];
  let ids = 0;
  const chat: Chat = new Chat({
    state,
    api,
    streams,
    drafts,
    health: new HealthWatch(api, state, () => undefined),
    navigate: (to) => {
      went.push(to);
      chat.show(to);
    },
    newId: () => `turn-${++ids}`,
    later: (run, ms) => timers.set(run, ms),
    cancelLater: (timer) => timers.clear(timer),
  });
  return { server, state, chat, sent, timers, went };
}

/** Lets everything that waits for an answer of the fake server go on. */
const settled = () => new Promise((resolve) => setTimeout(resolve));

describe("a new chat", () => {
  it("makes its session with the first message, titled by its first words", async () => {
    const { chat, state, sent, went } = setUp();
    chat.show(null);
    chat.send("What is the tide?\nExplain.");
    expect(state.opening.value?.text).toBe("What is the tide?\nExplain.");
    await settled();
    expect(went).toEqual(["conv_new"]);
    expect(state.session("conv_new")?.title).toBe("What is the tide? Explain.");
    expect(sent[0]).toMatchObject({
      type: "response.create",
      conversation: "conv_new",
      parent: null,
    });
    expect(state.opening.value).toBeNull();
  });

  it("keeps the message when the server is away, for a retry or for editing", async () => {
    const { chat, state, server, went } = setUp();
    server.down = true;
    chat.send("Hello");
    await settled();
    expect(state.opening.value?.trouble).toMatchObject({ code: "offline", retryable: true });
    server.down = false;
    chat.retryOpening();
    await settled();
    expect(went).toEqual(["conv_new"]);
  });

  it("takes along what is typed while the session is being made", async () => {
    const { chat, state } = setUp();
    chat.show(null);
    chat.send("Hello");
    chat.setDraft("and then");
    await settled();
    expect(state.draft.value).toBe("and then");
    chat.show(null);
    expect(state.draft.value).toBe("");
  });
});

describe("a chat", () => {
  it("continues the last turn on screen", async () => {
    const { chat, server, sent } = setUp();
    server.turns = [
      ended("a"),
      ended("b", { id: "resp_2", previous_response_id: "resp_1", created_at: 101 }),
    ];
    chat.show(CONVERSATION);
    await settled();
    chat.send("More");
    expect(last(sent)).toMatchObject({ type: "response.create", parent: "resp_2" });
  });

  it("continues the version that the reader chose", async () => {
    const { chat, state, server, sent } = setUp();
    server.turns = [ended("a"), ended("b", { id: "resp_2", created_at: 101 })];
    chat.show(CONVERSATION);
    await settled();
    state.choose(CONVERSATION, "", "resp_1");
    chat.send("More");
    expect(last(sent)).toMatchObject({ parent: "resp_1" });
  });

  it("does not build on a failure that said nothing", async () => {
    const { chat, server, sent } = setUp();
    const failed = response({ status: "failed", error: { code: "engine_died", message: "" } });
    server.turns = [failed];
    chat.show(CONVERSATION);
    await settled();
    chat.send("Again");
    expect(last(sent)).toMatchObject({ parent: null });
  });

  it("resumes after a reload what is still being written", async () => {
    const { chat, state, server, sent } = setUp();
    server.turns = [response()];
    chat.show(CONVERSATION);
    await settled();
    expect(sent).toEqual([
      {
        type: "response.resume",
        response_id: "resp_1",
        starting_after: -1,
        event_id: "resume:resp_1",
      },
    ]);
    expect(state.load(CONVERSATION).value).toBe("ready");
  });

  it("edits by a sibling of the turn, and regenerates by its id", async () => {
    const { chat, state, server, sent } = setUp();
    server.turns = [ended("a")];
    chat.show(CONVERSATION);
    await settled();
    const turn = last(state.structure(CONVERSATION));
    chat.edit(turn, "Other words");
    expect(last(sent)).toMatchObject({
      type: "response.create",
      parent: null,
      input: "Other words",
    });
    chat.regenerate(turn);
    expect(last(sent)).toMatchObject({ type: "response.regenerate", response_id: "resp_1" });
  });

  it("stops what runs in it and nothing else", async () => {
    const { chat, state, server, sent } = setUp();
    server.turns = [response()];
    chat.show(CONVERSATION);
    await settled();
    chat.show(null);
    sent.length = 0;
    chat.stop();
    expect(sent).toEqual([]);
    chat.show(CONVERSATION);
    chat.stop();
    expect(sent.map((frame) => frame.type)).toEqual(["response.cancel"]);
    expect(state.stopping.value.has("resp_1")).toBe(true);
  });

  it("forks at a turn under the same title", async () => {
    const { chat, state, server, went } = setUp();
    server.turns = [ended("a")];
    chat.show(CONVERSATION);
    await settled();
    await chat.fork(last(state.structure(CONVERSATION)));
    expect(server.forks).toEqual([[CONVERSATION, "resp_1", "Hello"]]);
    expect(went).toEqual(["conv_fork"]);
  });
});

describe("deleting", () => {
  it("can be undone, and nothing was deleted then", async () => {
    const { chat, state, server, timers } = setUp();
    await chat.loadSessions();
    chat.delete(session());
    expect(state.sessions.value).toEqual([]);
    last(state.toasts.value).action?.run();
    timers.pass(10_000);
    await settled();
    expect(server.deleted).toEqual([]);
    expect(state.sessions.value.length).toBe(1);
  });

  it("happens when the time for undo is over", async () => {
    const { chat, server, timers } = setUp();
    await chat.loadSessions();
    chat.delete(session());
    timers.pass(6_000);
    await settled();
    expect(server.deleted).toEqual([CONVERSATION]);
  });

  it("is not undone by a list that is read meanwhile", async () => {
    const { chat, state } = setUp();
    chat.delete(session());
    await chat.loadSessions();
    expect(state.sessions.value).toEqual([]);
  });

  it("happens at once when the page goes", () => {
    const { chat, server } = setUp();
    chat.delete(session());
    chat.finishDeletes();
    expect(server.deleted).toEqual([CONVERSATION]);
  });

  it("brings the chat back when the server refuses", async () => {
    const { chat, state, server, timers } = setUp();
    await chat.loadSessions();
    chat.delete(session());
    server.down = true;
    timers.pass(6_000);
    await settled();
    expect(state.sessions.value.length).toBe(1);
  });
});
