import { describe, expect, it } from "vitest";
import type { Readiness } from "../src/api";
import { HealthWatch, isComing } from "../src/health";
import { State } from "../src/state";

const settled = () => new Promise((resolve) => setTimeout(resolve));

function watch(...answers: Readiness[]) {
  const state = new State();
  const laters: (() => void)[] = [];
  let asked = 0;
  const readiness = async () => answers[Math.min(asked++, answers.length - 1)] as Readiness;
  const health = new HealthWatch({ readiness }, state, (run) => void laters.push(run));
  return { state, health, laters, asked: () => asked };
}

const answer = (state: string | null, detail: string | null = null): Readiness => ({
  ready: state === "ready",
  state,
  detail,
});

describe("HealthWatch", () => {
  it("asks again until the server is ready, and then no more", async () => {
    const { state, health, laters, asked } = watch(answer("starting", "weights"), answer("ready"));
    health.check();
    health.check();
    await settled();
    expect(state.health.value).toBe("loading");
    expect(state.healthDetail.value).toBe("weights");
    expect(laters.length).toBe(1);
    laters[0]?.();
    await settled();
    expect(state.health.value).toBe("ready");
    expect([asked(), laters.length]).toEqual([2, 1]);
  });

  it.each([
    ["restarting", true],
    ["draining", true],
    ["starting", true],
    ["failed", false],
    [null, false],
  ])("holds messages back only while the server says that it comes: %s", async (name, comes) => {
    const { state, health } = watch(answer(name));
    health.check();
    await settled();
    expect(isComing(state.health.value)).toBe(comes);
  });
});
