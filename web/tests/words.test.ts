import { describe, expect, it } from "vitest";
import { announce } from "../src/announce";
import { Drafts } from "../src/drafts";
import { advice, overflow, trouble } from "../src/errors";
import {
  ageGroup,
  duration,
  missReason,
  modelMark,
  modelNote,
  nameOf,
  rate,
  reuse,
  titleOf,
} from "../src/format";
import { readFrame } from "../src/protocol";
import { hashOf, placeIn } from "../src/route";
import { FakeStorage } from "./fakes";
import { METRICS, session } from "./samples";

describe("numbers", () => {
  it("are given in the unit one reads", () => {
    expect([duration(84.4), duration(1_240), duration(12_600)]).toEqual(["84 ms", "1.2 s", "13 s"]);
    expect([rate(61.2), rate(4.26)]).toEqual(["61 tokens/s", "4.3 tokens/s"]);
  });

  it("say how many tokens of the prompt were reused, and why not all", () => {
    expect(reuse(METRICS)).toBe("112 of 120 tokens reused");
    expect(missReason(METRICS)).toBeNull();
    const kv = { reused: 0, computed: 1_200, reason: "diverged", diverged_at: 1_024 };
    expect(reuse({ ...METRICS, kv })).toBe("0 of 1,200 tokens reused");
    expect(missReason({ ...METRICS, kv })).toBe("the history changed at token 1,024");
    expect(missReason({ ...METRICS, kv: { ...kv, reason: "some_new_reason" } })).toBe(
      "some new reason",
    );
    // One token is always computed: nothing was lost.
    const all = { reused: 47, computed: 1, reason: "new", diverged_at: null };
    expect(missReason({ ...METRICS, kv: all })).toBeNull();
  });
});

describe("names", () => {
  it("are the title, else the first words, else say that there are none", () => {
    expect(nameOf(session({ title: "Tides" }), "Hello")).toBe("Tides");
    expect(nameOf(session(), "Hello\nthere")).toBe("Hello there");
    expect(nameOf(session(), undefined)).toBe("Untitled chat");
  });

  it("say what will be read anew, in the list and above the message box", () => {
    const imported = session({ model_state: "fingerprint_changed" });
    expect(modelMark(imported)).toBe("To be read anew");
    expect(modelNote(imported)).toMatch(/^The loaded model has not read this chat yet/);
    expect([modelMark(session()), modelNote(session())]).toEqual([null, null]);
  });

  it("are cut at a word", () => {
    const long = "Please explain to me in some detail how the tides of the North Sea work";
    expect(titleOf(long)).toBe("Please explain to me in some detail how the tides of the…");
    expect(titleOf("x".repeat(80)).length).toBe(61);
  });

  it("stand under the day of their last use", () => {
    const now = new Date(2026, 10, 29, 12).getTime();
    const at = (days: number) => ageGroup(now / 1_000 - days * 86_400, now);
    expect([0, 1, 3, 20, 90].map(at)).toEqual([
      "Today",
      "Yesterday",
      "Last 7 days",
      "Last 30 days",
      "Earlier",
    ]);
  });
});

describe("announce", () => {
  it("tells finished sentences once, and the rest at the end", () => {
    const first = announce("One. Two is not", 0, false);
    expect(first).toEqual({ say: "One.", upTo: 5 });
    expect(announce("One. Two is not done", first.upTo, false).say).toBe("");
    expect(announce("One. Two is **done**", first.upTo, true).say).toBe("Two is done");
  });

  it("starts again for a text that was replaced by a shorter one", () => {
    expect(announce("New. ", 40, false).say).toBe("New.");
  });
});

describe("drafts", () => {
  it("are kept for each chat, and removed when empty", () => {
    const storage = new FakeStorage();
    new Drafts(storage).set("conv_1", "half");
    new Drafts(storage).set(null, "new");
    expect(new Drafts(storage).get("conv_1")).toBe("half");
    expect(new Drafts(storage).get(null)).toBe("new");
    new Drafts(storage).set("conv_1", "");
    expect([...storage.all.keys()]).toEqual(["splice.draft.new"]);
  });

  it("last as long as the page where storage is forbidden", () => {
    const forbidden = () => {
      throw new DOMException("no", "SecurityError");
    };
    const drafts = new Drafts({
      getItem: forbidden,
      setItem: forbidden,
      removeItem: forbidden,
      key: forbidden,
      get length() {
        return forbidden();
      },
    });
    expect(drafts.get("conv_1")).toBe("");
    drafts.set("conv_1", "half");
    expect(drafts.get("conv_1")).toBe("half");
  });
});

describe("trouble", () => {
  it("knows the protocol's codes and passes others on in the server's words", () => {
    const full = trouble("context_length_exceeded", "119 too many");
    expect(full).toMatchObject({
      title: "This conversation is full.",
      detail: "119 too many.",
      retryable: false,
    });
    expect(advice(full.code)).toBe("Start a new chat, or fork from an earlier turn.");
    expect(trouble("engine_died", "").retryable).toBe(true);
    expect(trouble("new_code", "the server is upset")).toMatchObject({
      title: "The server is upset.",
    });
  });
});

describe("a prompt that is too long", () => {
  const full = trouble("context_length_exceeded", "the prompt has 5,500 tokens: 1,405 too many");
  const code = (before: number | null, instructed = false) =>
    overflow(full, before, instructed).code;

  it("is the conversation's fault where less history would help, or none is known", () => {
    expect([code(1_405), code(4_000), code(null)]).toEqual(Array(3).fill(full.code));
  });

  it("is the message's where it is too long alone, or with the instructions", () => {
    expect([code(1_404), code(0), code(1_404, true)]).toEqual(Array(3).fill("message_too_long"));
    expect(code(0, true)).toBe("beginning_too_long");
    expect(overflow(full, 0, false)).toMatchObject({
      title: "This message is too long by itself.",
      detail: "The prompt has 5,500 tokens: 1,405 too many.",
    });
    expect(advice(code(0))).toBe("Shorten it and send it again.");
  });
});

describe("the address", () => {
  it("names the session, and nothing else is taken for one", () => {
    expect(placeIn(hashOf("conv_1"))).toEqual({ session: "conv_1", turn: null });
    const nowhere = { session: null, turn: null };
    for (const hash of ["", "#/", "#/c/", "#/c/a/b/c", "#/c/<x>"])
      expect(placeIn(hash)).toEqual(nowhere);
  });

  it("names one of the session's turns as well", () => {
    expect(placeIn(hashOf("conv_1", "resp_1"))).toEqual({ session: "conv_1", turn: "resp_1" });
  });
});

describe("readFrame", () => {
  it("reads what the protocol says and refuses the rest", () => {
    expect(readFrame('{"type":"pong","nonce":1}')).toEqual({ type: "pong", nonce: 1 });
    expect(readFrame('{"type":"error","status":429}')).toMatchObject({
      error: { code: "internal" },
      event_id: null,
    });
    for (const bad of ["", "[]", "null", "{}", '{"type":1}', '{"type":"response.created"}']) {
      expect(readFrame(bad)).toBeNull();
    }
  });
});
