import { describe, expect, it } from "vitest";
import { pathOf } from "../src/tree";
import { type Turn, turnFromResponse } from "../src/turn";
import { CONVERSATION, ended } from "./samples";

function turn(id: string, previous_response_id: string | null, created_at: number): Turn {
  return turnFromResponse(ended(id, { id, previous_response_id, created_at }), CONVERSATION);
}

// a ─ b ─ d
//   └ c ─ e
const TURNS = [
  turn("a", null, 1),
  turn("b", "a", 2),
  turn("c", "a", 3),
  turn("d", "b", 4),
  turn("e", "c", 5),
];
const ids = (head: string | null, choices = new Map<string, string>(), turns = TURNS) =>
  pathOf(turns, head, choices).map((step) => step.turn.id);

describe("pathOf", () => {
  it("follows the head", () => {
    expect(ids("d")).toEqual(["a", "b", "d"]);
    expect(ids("e")).toEqual(["a", "c", "e"]);
  });

  it("takes the youngest where there is no head", () => {
    expect(ids(null)).toEqual(["a", "c", "e"]);
  });

  it("prefers what the reader chose, and goes on below it", () => {
    expect(ids("d", new Map([["a", "c"]]))).toEqual(["a", "c", "e"]);
  });

  it("knows the versions of each step, oldest first", () => {
    expect(pathOf(TURNS, "d", new Map())[1]?.siblings.map((turn) => turn.id)).toEqual(["b", "c"]);
  });

  it("lets a choice that is gone be no choice", () => {
    expect(ids("d", new Map([["a", "gone"]]))).toEqual(["a", "b", "d"]);
  });

  it("makes a root of a turn whose parent was not sent", () => {
    expect(ids("d", new Map(), TURNS.slice(1))).toEqual(["b", "d"]);
  });

  it("ends on turns that are each other's parents", () => {
    expect(ids("x", new Map(), [turn("x", "y", 1), turn("y", "x", 2)])).toEqual([]);
  });
});
