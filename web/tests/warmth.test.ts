import { describe, expect, it } from "vitest";
import type { Api } from "../src/api";
import { placeOf } from "../src/format";
import { State } from "../src/state";
import { WARM_EVERY_MS, Warmth } from "../src/warmth";
import { CONVERSATION, session } from "./samples";

function begin(head: string | null = "resp_1") {
  const state = new State();
  state.putSession(session({ head }));
  const asked: string[] = [];
  let now = 0;
  const later: (() => void)[] = [];
  const api = {
    async warm(id: string) {
      asked.push(id);
    },
    async getSession(id: string) {
      return session({ id, head, kv: KV });
    },
  } as unknown as Api;
  const warmth = new Warmth({ state, api, now: () => now, later: (run) => later.push(run) });
  return { state, asked, warmth, later, wait: (ms: number) => (now += ms) };
}

const KV = {
  tier: "device" as const,
  stored_in: ["disk" as const],
  num_tokens: 150,
  num_bytes: 3_686_400,
  used_at: 100,
};

describe("warmth", () => {
  it("asks when typing begins, and once a minute at most", () => {
    const { asked, warmth, wait } = begin();
    warmth.typed(CONVERSATION);
    warmth.typed(CONVERSATION);
    wait(WARM_EVERY_MS - 1);
    warmth.typed(CONVERSATION);
    expect(asked).toEqual([CONVERSATION]);
    wait(1);
    warmth.typed(CONVERSATION);
    expect(asked).toEqual([CONVERSATION, CONVERSATION]);
  });

  it("asks for nothing in a chat without a turn, or while a reply comes", () => {
    const fresh = begin(null);
    fresh.warmth.typed(CONVERSATION);
    const live = begin();
    live.state.live.value = new Map([["resp_2", CONVERSATION]]);
    live.warmth.typed(CONVERSATION);
    expect([...fresh.asked, ...live.asked]).toEqual([]);
  });

  it("shows where the chat is afterwards", async () => {
    const { state, warmth, later } = begin();
    warmth.typed(CONVERSATION);
    await Promise.resolve();
    later[0]?.();
    await Promise.resolve();
    await Promise.resolve();
    expect(state.session(CONVERSATION)?.kv).toEqual(KV);
  });
});

describe("where a chat is", () => {
  const NOW = 7_300_000;
  const at = (more: Parameters<typeof session>[0]) =>
    placeOf(session({ head: "resp_1", ...more }), false, NOW);

  it("names the quickest place, the size and the age", () => {
    expect(at({ kv: KV })?.short).toBe("In memory · 3.5 MB");
    expect(at({ kv: { ...KV, tier: "disk" } })).toEqual({
      kind: "disk",
      short: "On disk · 3.5 MB",
      long: "On disk: 150 tokens, 3.5 MB, last used 2 h ago",
    });
    expect(at({ kv: { ...KV, tier: "cpu" } })?.short).toBe("In host memory · 3.5 MB");
  });

  it("says that nothing is kept, and what that means", () => {
    expect(at({ kv: null })).toEqual({
      kind: "none",
      short: "Not cached",
      long: "Not cached: the next message computes the whole chat again",
    });
  });

  it("is not told of a chat without a turn, nor of a fork, which goes on with its origin's", () => {
    expect(at({ head: null })).toBeNull();
    expect(at({ forked_from: "resp_1" })).toBeNull();
    expect(at({ forked_from: "resp_1", kv: KV })?.kind).toBe("device");
    expect(at({ forked_from: "resp_1", head: "resp_2" })?.kind).toBe("none");
  });

  it("is in memory while a reply comes", () => {
    expect(placeOf(session({ kv: null }), true, NOW)?.kind).toBe("device");
  });
});
