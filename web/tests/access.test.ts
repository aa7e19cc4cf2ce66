import { afterEach, describe, expect, it, vi } from "vitest";
import { Access } from "../src/access";
import { createApi } from "../src/api";
import { Drafts } from "../src/drafts";
import { State } from "../src/state";
import { FakeStorage } from "./fakes";
import { session } from "./samples";

/** A server that takes one key; what it was asked. */
function serve(good: string, refusal = { status: 401, code: "invalid_api_key" }) {
  const asked: { url: string; key: string | null }[] = [];
  vi.stubGlobal("fetch", async (url: string, request: RequestInit) => {
    const key = new Headers(request.headers).get("authorization");
    asked.push({ url, key });
    const body =
      key === `Bearer ${good}`
        ? { data: [], has_more: false, ticket: "wst_1" }
        : { error: { code: refusal.code, message: "no" } };
    const status = key === `Bearer ${good}` ? 200 : refusal.status;
    return new Response(JSON.stringify(body), { status });
  });
  return asked;
}

afterEach(() => vi.unstubAllGlobals());

describe("Access", () => {
  it("asks for a key once the server wants one", async () => {
    serve("good");
    const access = new Access(new FakeStorage());
    await expect(createApi("/", access).listSessions()).rejects.toThrow();
    expect(access.asking.value).toBe("first");
  });

  it("sends the key in a header and never in an address", async () => {
    const asked = serve("good");
    const access = new Access(new FakeStorage());
    access.accept("good", false);
    const api = createApi("/", access);
    await api.listSessions();
    expect(await api.ticket()).toBe("wst_1");
    expect(asked.map((one) => one.key)).toEqual(["Bearer good", "Bearer good"]);
    expect(asked.some((one) => one.url.includes("good"))).toBe(false);
    expect(access.asking.value).toBeNull();
  });

  it("keeps a key only where the reader said so", () => {
    const kept = new FakeStorage();
    new Access(kept).accept("mine", false);
    expect(new Access(kept).key.value).toBeNull();
    new Access(kept).accept("mine", true);
    expect(new Access(kept).key.value).toBe("mine");
  });

  it("forgets a key that is refused, and says that it was", async () => {
    serve("other");
    const kept = new FakeStorage();
    const access = new Access(kept);
    access.accept("revoked", true);
    await expect(createApi("/", access).listSessions()).rejects.toThrow();
    expect(access.asking.value).toBe("refused");
    expect(kept.all.size).toBe(0);
  });

  it("tells a key that may not chat from one that is wrong", async () => {
    serve("other", { status: 403, code: "missing_scope" });
    const access = new Access(null);
    access.accept("admin", false);
    await expect(createApi("/", access).listSessions()).rejects.toThrow();
    expect(access.asking.value).toBe("forbidden");
  });

  it("does not take a refused origin for a refused key", async () => {
    serve("other", { status: 403, code: "origin_not_allowed" });
    const access = new Access(null);
    await expect(createApi("/", access).listSessions()).rejects.toThrow();
    expect(access.asking.value).toBeNull();
  });

  it("is not thrown out by the answer to an older call", () => {
    const access = new Access(null);
    access.accept("new", false);
    access.refused("old", 401);
    expect(access.asking.value).toBeNull();
  });

  it("tries a key without taking it", async () => {
    serve("good");
    const access = new Access(null);
    access.logOut();
    const api = createApi("/", access);
    await expect(api.checkKey("bad")).rejects.toThrow();
    await api.checkKey("good");
    expect(access.key.value).toBeNull();
    expect(access.asking.value).toBe("first");
  });

  it("leaves nothing behind after a log-out", () => {
    const kept = new FakeStorage();
    const access = new Access(kept);
    access.accept("mine", true);
    access.logOut();
    expect(kept.all.size).toBe(0);
    expect(access.key.value).toBeNull();
    expect(access.asking.value).toBe("first");
  });
});

describe("another reader", () => {
  it("finds neither chats nor drafts", () => {
    const kept = new FakeStorage();
    kept.setItem("theme", "dark");
    const drafts = new Drafts(kept);
    drafts.set(null, "a secret");
    drafts.set("conv_1", "another");
    const state = new State();
    state.putSession(session());
    state.draft.value = "a secret";
    drafts.forget();
    state.forget();
    expect([...kept.all.keys()]).toEqual(["theme"]);
    expect(drafts.get(null)).toBe("");
    expect(state.sessions.value).toEqual([]);
    expect(state.draft.value).toBe("");
  });
});
