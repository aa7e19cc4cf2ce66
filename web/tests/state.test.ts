import { describe, expect, it } from "vitest";
import { State } from "../src/state";
import { fold, turnFromResponse } from "../src/turn";
import { CONVERSATION, ended, events, response, session } from "./samples";

describe("snapshots and events", () => {
  const row = events(["a", "b"]);
  const active = turnFromResponse(response(), CONVERSATION);

  it("a snapshot never takes back what events have told", () => {
    const state = new State();
    const live = row.slice(0, 5).reduce(fold, active);
    state.putTurn(live);
    state.putTurns(CONVERSATION, [active]);
    expect(state.turn("resp_1")?.value).toBe(live);
  });

  it("a snapshot ends a turn whose end was missed", () => {
    const state = new State();
    state.putTurn(row.slice(0, 5).reduce(fold, active));
    state.putTurns(CONVERSATION, [turnFromResponse(ended("ab"), CONVERSATION)]);
    expect(state.turn("resp_1")?.value).toMatchObject({ status: "completed", text: "ab" });
    expect(state.live.value.size).toBe(0);
  });

  it("an ended turn never becomes active again", () => {
    const state = new State();
    state.putTurn(row.reduce(fold, active));
    state.putTurns(CONVERSATION, [active]);
    expect(state.turn("resp_1")?.value.status).toBe("completed");
  });

  it("a turn made while the snapshot was on its way stays", () => {
    const state = new State();
    state.putTurn({ ...active, id: "resp_2" });
    state.putTurns(CONVERSATION, [turnFromResponse(ended("x"), CONVERSATION)]);
    expect(state.members(CONVERSATION).value).toEqual(["resp_1", "resp_2"]);
  });

  it("a fork shows its origin's turns without owning them", () => {
    const state = new State();
    const turn = turnFromResponse(ended("x"), CONVERSATION);
    state.putTurns(CONVERSATION, [turn]);
    state.putTurns("conv_fork", [turn]);
    expect(state.structure("conv_fork").map((one) => one.session)).toEqual([CONVERSATION]);
  });
});

describe("the list", () => {
  it("has the most recently used first", () => {
    const state = new State();
    state.putSession(session({ id: "a", updated_at: 1 }));
    state.putSession(session({ id: "b", updated_at: 3 }));
    state.putSession(session({ id: "c", updated_at: 2 }));
    expect(state.sessions.value.map((one) => one.id)).toEqual(["b", "c", "a"]);
  });

  it("marks a reply that ended elsewhere as unread", () => {
    const state = new State();
    const active = turnFromResponse(response(), CONVERSATION);
    state.putTurn(active);
    expect([...state.live.value.values()]).toEqual([CONVERSATION]);
    state.putTurn({ ...active, status: "completed" });
    expect(state.unread.value.has(CONVERSATION)).toBe(true);
  });

  it("knows of replies that others asked for, until their end is known", () => {
    const state = new State();
    expect(state.isLive(session())).toBe(false);
    const running = session({ active: ["resp_1"] });
    expect(state.isLive(running)).toBe(true);
    // Read from the list before its end was told.
    state.putTurns(CONVERSATION, [turnFromResponse(ended("x"), CONVERSATION)]);
    expect(state.isLive(running)).toBe(false);
  });
});
