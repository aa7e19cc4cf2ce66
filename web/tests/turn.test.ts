import { describe, expect, it } from "vitest";
import { fold, follows, type Turn, turnFromResponse } from "../src/turn";
import { CONVERSATION, ended, events, METRICS, response } from "./samples";

const DELTAS = ["The ", "Moon ", "pulls 🌊", " the\n\n", "sea."];

function foldAll(turn: Turn, row: readonly ReturnType<typeof events>[number][]): Turn {
  return row.reduce(
    (now, event) => (follows(now.seen, event) === "next" ? fold(now, event) : now),
    turn,
  );
}

describe("fold", () => {
  const row = events(DELTAS);
  const start = turnFromResponse(response(), CONVERSATION);
  const whole = foldAll(start, row);

  it("gives the text, the status and the metrics of the whole row", () => {
    expect(whole.text).toBe("The Moon pulls 🌊 the\n\nsea.");
    expect(whole.status).toBe("completed");
    expect(whole.metrics).toMatchObject({ ttft_ms: METRICS.ttft_ms, kv: METRICS.kv });
    expect(whole.seen).toBe(row.length - 1);
  });

  it("gives the same for every cut and every overlap of what is resumed", () => {
    for (let cut = 0; cut <= row.length; cut += 1) {
      for (let from = 0; from <= cut; from += 1) {
        const before = foldAll(start, row.slice(0, cut));
        expect(foldAll(before, row.slice(from))).toEqual(whole);
      }
    }
  });

  it("takes an event twice only once", () => {
    const doubled = row.flatMap((event) => [event, event]);
    expect(foldAll(start, doubled)).toEqual(whole);
  });

  it("counts an event of an unknown type, so that the numbers stay whole", () => {
    const strange = { ...row[0], type: "response.something_new", sequence_number: 0 };
    expect(fold(start, strange as never)).toEqual({ ...start, seen: 0 });
  });

  it("keeps what was read when a failed turn ends without output", () => {
    const half = foldAll(start, row.slice(0, 6));
    const error = { code: "engine_died", message: "gone" };
    const failed = response({ status: "failed", error });
    const end = { ...row[0], type: "response.failed", sequence_number: 6, response: failed };
    expect(fold(half, end as never)).toMatchObject({ status: "failed", text: "The Moon ", error });
  });

  it("calls a stopped turn cancelled though its event is response.incomplete", () => {
    const stopped = ended("The ", { status: "cancelled" });
    const end = { ...row[0], type: "response.incomplete", sequence_number: 0, response: stopped };
    expect(fold(start, end as never)).toMatchObject({ status: "cancelled", text: "The " });
  });
});

describe("follows", () => {
  it("tells the next event from a duplicate and from a gap", () => {
    const [zero, one, two] = events(DELTAS);
    expect(zero && follows(-1, zero)).toBe("next");
    expect(one && follows(1, one)).toBe("duplicate");
    expect(two && follows(0, two)).toBe("gap");
  });

  it("takes an end whatever its number, with the reply that it brings", () => {
    const start = turnFromResponse(response(), CONVERSATION);
    const ahead = foldAll(start, events(DELTAS).slice(0, 9));
    const cut = ended("The Moon ", {
      status: "incomplete",
      incomplete_details: { reason: "interrupted" },
    });
    const end = {
      ...events([])[0],
      type: "response.incomplete",
      sequence_number: 7,
      response: cut,
    };
    expect(follows(ahead.seen, end as never)).toBe("next");
    expect(fold(ahead, end as never)).toMatchObject({
      status: "incomplete",
      reason: "interrupted",
      text: "The Moon ",
    });
  });
});

describe("turnFromResponse", () => {
  it("reads an ended turn whole and an active one empty, to be resumed from the start", () => {
    expect(turnFromResponse(ended("Hi"), CONVERSATION)).toMatchObject({
      text: "Hi",
      input: "Hello",
    });
    const active = { ...ended("half"), status: "in_progress" as const };
    expect(turnFromResponse(active, CONVERSATION)).toMatchObject({ text: "", seen: -1 });
  });
});
