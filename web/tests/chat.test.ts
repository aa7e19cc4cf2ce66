import { effect } from "@preact/signals";
import { describe, expect, it } from "vitest";
import { last, settled, setUp } from "./desk";
import { CONVERSATION, ended, response } from "./samples";

describe("a new chat", () => {
  it("makes its session with the first message, and leaves the title to the server", async () => {
    const { chat, state, sent, went } = setUp();
    chat.show(null);
    chat.send("What is the tide?\nExplain.");
    expect(state.opening.value?.text).toBe("What is the tide?\nExplain.");
    await settled();
    expect(went).toEqual(["conv_new"]);
    expect(state.session("conv_new")?.title).toBeNull();
    expect(sent[0]).toMatchObject({
      type: "response.create",
      conversation: "conv_new",
      parent: null,
    });
    expect(state.opening.value).toBeNull();
  });

  it("is never idle between its first message and its session on screen", async () => {
    const { chat, state } = setUp();
    chat.show(null);
    chat.send("Hello");
    let isIdle = false;
    const stop = effect(() => {
      isIdle ||= state.current.value === null && state.opening.value === null;
    });
    await settled();
    stop();
    expect(state.current.value).toBe("conv_new");
    expect(state.opening.value).toBeNull();
    expect(isIdle).toBe(false);
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

  it("follows the server's last turn as long as its turns are not known here", async () => {
    const { chat, sent, server } = setUp();
    server.turns = [ended("a")];
    chat.show(CONVERSATION);
    chat.send("Before they are read");
    expect(last(sent)).not.toHaveProperty("parent");
    await settled();
    chat.send("And after");
    expect(last(sent)).toMatchObject({ parent: "resp_1" });
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
