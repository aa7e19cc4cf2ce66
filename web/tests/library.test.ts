import { describe, expect, it } from "vitest";
import { NO_SETTINGS, settingsOf } from "../src/library";
import type { SessionFrame } from "../src/protocol";
import { last, settled, setUp } from "./desk";
import { CONVERSATION, ended, session } from "./samples";

describe("deleting", () => {
  it("happens at once, and undo asks the server to bring it back", async () => {
    const { library, state, server, went } = setUp();
    await library.load();
    state.current.value = CONVERSATION;
    await library.delete(session());
    expect(state.sessions.value).toEqual([]);
    expect(server.deleted).toEqual([CONVERSATION]);
    expect(went).toEqual([null]);
    last(state.toasts.value).action?.run();
    await settled();
    expect(server.restored).toEqual([CONVERSATION]);
    expect(state.sessions.value.length).toBe(1);
    expect(went).toEqual([null, CONVERSATION]);
  });

  it("is undone by a key as long as its note is there, which stays while somebody is at it", async () => {
    const { chat, library, state, server, timers } = setUp();
    expect(chat.undo()).toBe(false);
    await library.delete(session(), true);
    const note = last(state.toasts.value);
    expect(note.action?.takesFocus).toBe(true);
    chat.hold(note.id, true);
    timers.pass(60_000);
    expect(state.toasts.value).toEqual([note]);
    expect(chat.undo()).toBe(true);
    await settled();
    expect(server.restored).toEqual([CONVERSATION]);
    expect(state.toasts.value).toEqual([]);
    await library.delete(session());
    chat.hold(last(state.toasts.value).id, true);
    chat.hold(last(state.toasts.value).id, false);
    timers.pass(12_000);
    expect([state.toasts.value, chat.undo()]).toEqual([[], false]);
  });

  it("is not undone by a list that is read meanwhile", async () => {
    const { library, state } = setUp();
    const deleted = library.delete(session());
    await library.load();
    await deleted;
    expect(state.sessions.value).toEqual([]);
  });

  it("brings the chat back when the server refuses", async () => {
    const { library, state, server } = setUp();
    await library.load();
    server.down = true;
    await library.delete(session());
    expect(state.sessions.value.length).toBe(1);
    expect(last(state.toasts.value).text).toContain("could not be deleted");
  });
});

describe("the list, read again", () => {
  const at = (id: string, updated_at: number) => session({ id, updated_at });
  const listed = ({ state }: ReturnType<typeof setUp>) => state.sessions.value.map(({ id }) => id);

  it("has what others made and named, and not what they deleted", async () => {
    const desk = setUp();
    await desk.library.load();
    desk.server.sessions = [session({ id: "conv_2", title: "Tides", updated_at: 200 })];
    await desk.library.load();
    expect(listed(desk)).toEqual(["conv_2"]);
    expect(desk.state.session("conv_2")?.title).toBe("Tides");
  });

  it("is as long as the reader has made it, and goes on where it ended", async () => {
    const desk = setUp();
    const { server, library, state } = desk;
    server.sessions = [at("a", 6), at("b", 5), at("c", 4), at("d", 3), at("e", 2)];
    server.limit = 2;
    await library.load();
    await library.loadMore();
    server.sessions.unshift(at("new", 7));
    await library.load();
    expect(listed(desk)).toEqual(["new", "a", "b", "c", "d"]);
    expect(state.hasMoreSessions.value).toBe(true);
    await library.loadMore();
    expect(listed(desk)).toEqual(["new", "a", "b", "c", "d", "e"]);
    expect(state.hasMoreSessions.value).toBe(false);
  });

  it("does not take back what was learnt while it was on its way", async () => {
    const desk = setUp();
    await desk.library.load();
    const read = desk.library.load();
    desk.state.putSession(session({ title: "Tides", revision: 2 }));
    desk.state.putSession(at("made", 200));
    await read;
    expect(listed(desk)).toEqual(["made", CONVERSATION]);
    expect(desk.state.session(CONVERSATION)?.title).toBe("Tides");
  });

  it("leaves the chat on screen, though no list has it", async () => {
    const desk = setUp();
    desk.state.current.value = "hidden";
    desk.state.putSession(session({ id: "hidden", listed: false, updated_at: 300 }));
    await desk.library.load();
    await desk.library.load();
    expect(listed(desk)).toEqual(["hidden", CONVERSATION]);
  });
});

describe("a change", () => {
  it("shows at once, and is told to the other windows when the server has it", async () => {
    const { library, state, told } = setUp();
    await library.load();
    const renamed = library.rename(session(), "  Tides ");
    expect(state.session(CONVERSATION)?.title).toBe("Tides");
    await renamed;
    expect(state.session(CONVERSATION)?.title).toBe("Tides");
    expect(told).toEqual([CONVERSATION]);
  });

  it("is taken back when the server refuses, and can be tried again", async () => {
    const { library, state, server } = setUp();
    await library.load();
    server.down = true;
    await library.pin(session(), true);
    expect(state.session(CONVERSATION)?.pinned).toBe(false);
    server.down = false;
    last(state.toasts.value).action?.run();
    await settled();
    expect(state.session(CONVERSATION)?.pinned).toBe(true);
  });

  it("puts pinned chats before newer ones", async () => {
    const { library, state, server } = setUp();
    server.sessions.unshift(session({ id: "conv_2", updated_at: 200 }));
    await library.load();
    await library.pin(session(), true);
    expect(state.sessions.value.map((one) => one.id)).toEqual([CONVERSATION, "conv_2"]);
  });
});

describe("settings", () => {
  const AFTER = { ...NO_SETTINGS, instructions: "Be brief.", sampling: { temperature: 0.2 } };

  it("are saved over what the reader saw", async () => {
    const { library, server } = setUp();
    expect(await library.set(CONVERSATION, settingsOf(session()), AFTER)).toBeNull();
    expect(server.changes).toEqual([AFTER]);
  });

  it("of another window are not overwritten unseen", async () => {
    const { library, server } = setUp();
    server.sessions = [session({ instructions: "Be long." })];
    const what = await library.set(CONVERSATION, settingsOf(session()), AFTER);
    expect(what?.code).toBe("revision_conflict");
    expect(server.changes).toEqual([]);
    expect(await library.set(CONVERSATION, null, AFTER)).toBeNull();
    expect(server.changes).toEqual([AFTER]);
  });

  it("of a chat that does not exist yet go into it", async () => {
    const { chat, state } = setUp();
    state.newSettings.value = AFTER;
    chat.show(null);
    chat.send("Hello");
    await settled();
    expect(state.session("conv_new")?.instructions).toBe("Be brief.");
    expect(state.newSettings.value).toEqual(NO_SETTINGS);
  });
});

describe("search", () => {
  const HIT = {
    id: "msg_1",
    kind: "message" as const,
    conversation: { id: CONVERSATION, title: null },
    response_id: "resp_1",
    role: "user",
    snippet: "the tide",
    highlights: [[4, 8]],
  };

  it("shows what was found, and an error with its words to try again", async () => {
    const { library, state, server } = setUp();
    server.hits = [HIT];
    await library.search("tide");
    expect(state.search.value).toMatchObject({ load: "ready", hits: [HIT] });
    server.down = true;
    await library.search("tides");
    expect(state.search.value).toMatchObject({ words: "tides", load: { code: "offline" } });
  });

  it("keeps the answer to the last question only", async () => {
    const { library, state, server } = setUp();
    server.hits = [HIT];
    const first = library.search("tide");
    await library.search("");
    await first;
    expect(state.search.value).toBeNull();
  });

  it("leads to the turn, on whichever branch it lies", async () => {
    const { chat, state, server } = setUp();
    server.turns = [ended("a"), ended("b", { id: "resp_2" })];
    server.sessions = [session({ head: "resp_2" })];
    chat.show(CONVERSATION, "resp_1");
    await settled();
    expect(state.choices(CONVERSATION).value.get("")).toBe("resp_1");
    expect(state.sought.value).toBe("resp_1");
  });
});

describe("files", () => {
  it("are named for the chat", async () => {
    const { library, saved } = setUp();
    await library.export(session({ title: "High & low tides?" }), "markdown");
    await library.export(session(), "json");
    expect(saved).toEqual(["High-low-tides.md", `${CONVERSATION}.json`]);
  });

  it("come in as a chat that is shown, and what is none is refused in words", async () => {
    const { library, state, server, went } = setUp();
    await library.import('{"object":"splice.export"}');
    expect(server.imports).toEqual([{ object: "splice.export" }]);
    expect(went).toEqual(["conv_in"]);
    for (const other of ["no chat", '{"a":1}', "null"]) {
      await library.import(other);
      expect(last(state.toasts.value).text).toContain("not a chat exported as JSON");
    }
    expect(server.imports.length).toBe(1);
    // Once, however often it is said.
    expect(state.toasts.value.length).toBe(1);
  });
});

describe("versions", () => {
  it("that are chosen become the branch that is gone on with", async () => {
    const { chat, state, server } = setUp();
    server.turns = [ended("a"), ended("b", { id: "resp_2" })];
    chat.show(CONVERSATION);
    await settled();
    const first = state.turn("resp_1")?.peek();
    if (first) chat.choose(CONVERSATION, first);
    await settled();
    expect(server.heads).toEqual(["resp_1"]);
  });
});

describe("names", () => {
  it("are the first words where the server has found none after a while", async () => {
    const { chat, state, server, timers } = setUp();
    server.turns = [ended("a")];
    chat.show(CONVERSATION);
    await settled();
    timers.pass(44_000);
    expect(server.changes).toEqual([]);
    timers.pass(2_000);
    await settled();
    expect(state.session(CONVERSATION)?.title).toBe("Hello");
  });

  it("that the server has found meanwhile stay", async () => {
    const { chat, state, server, timers } = setUp();
    server.turns = [ended("a")];
    chat.show(CONVERSATION);
    await settled();
    server.sessions = [session({ title: "Tides", revision: 2 })];
    timers.pass(46_000);
    await settled();
    expect(server.changes).toEqual([]);
    expect(state.session(CONVERSATION)?.title).toBe("Tides");
  });
});

describe("what happens elsewhere", () => {
  const frame = (more: Partial<SessionFrame>): SessionFrame => ({
    type: "splice:session.changed",
    conversation: CONVERSATION,
    revision: 2,
    resync: false,
    change: "updated",
    response_id: null,
    session: session({ title: "Tides", revision: 2 }),
    ...more,
  });

  it("shows at once, and a turn that is not known is read", async () => {
    const { chat, state, server } = setUp();
    chat.show(CONVERSATION);
    await settled();
    chat.happened(frame({}));
    expect(state.session(CONVERSATION)?.title).toBe("Tides");
    server.turns = [ended("a")];
    chat.happened(frame({ change: "turn_started", response_id: "resp_1", revision: 3 }));
    await settled();
    expect(state.turn("resp_1")?.value.text).toBe("a");
  });

  it("may be that the chat is deleted", async () => {
    const { chat, library, state } = setUp();
    await library.load();
    chat.happened(frame({ change: "deleted", session: null }));
    expect(state.sessions.value).toEqual([]);
  });
});
