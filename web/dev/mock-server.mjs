// A server that speaks docs/protocol.md with canned replies, for working on the page alone.
//
//   npm run build && npm run mock            the built page on http://127.0.0.1:8000
//   MOCK_SPEED=10 npm run mock               ten times slower
//   MOCK_LOADING=5 npm run mock              not ready for five seconds
//
// Words in a message do things: "slow", "fail", "die" (fails in mid-reply), "full" (context),
// "busy", "drop" (the socket is cut in mid-reply), "dup" (every event twice), "hole" (one missing).
import { createReadStream, existsSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { WebSocketServer } from "ws";
import { replyTo } from "./replies.mjs";

const PORT = Number(process.env.MOCK_PORT ?? 8000);
const SPEED = Number(process.env.MOCK_SPEED ?? 1);
const READY_AT = Date.now() + 1000 * Number(process.env.MOCK_LOADING ?? 0);
const PAGE = join(dirname(fileURLToPath(import.meta.url)), "../../app/page");
const MODEL = "SmolLM2-135M-Instruct";
const CSP =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
  "base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

/** id → session; id → {turn, events, listeners, stop} */
const sessions = new Map();
const turns = new Map();
let counter = 0;
const newId = (prefix) => `${prefix}_${(++counter).toString().padStart(8, "0")}`;
const now = () => Math.floor(Date.now() / 1000);

class Refusal extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
  get body() {
    const type = this.status >= 500 ? "server_error" : "invalid_request_error";
    return { error: { message: this.message, type, param: null, code: this.code } };
  }
}

function makeSession({ title = null, instructions = null, head = null, forked_from = null } = {}) {
  const session = {
    id: newId("conv"),
    object: "session",
    title,
    instructions,
    model: MODEL,
    metadata: {},
    head,
    forked_from,
    revision: 1,
    created_at: now(),
    updated_at: now(),
  };
  sessions.set(session.id, session);
  return session;
}

function sessionOf(id) {
  const session = sessions.get(id);
  if (!session) throw new Refusal(404, "session_not_found", `there is no session ${id}`);
  return session;
}

function runOf(id) {
  const run = turns.get(id);
  if (!run) throw new Refusal(404, "turn_not_found", `there is no turn ${id}`);
  return run;
}

function inputText(input) {
  if (typeof input === "string") return input;
  return input.map((m) => (typeof m.content === "string" ? m.content : m.content[0].text)).join();
}

function branchOf(head) {
  const branch = [];
  for (let run = turns.get(head); run; run = turns.get(run.turn.previous_response_id)) {
    branch.unshift(run.turn);
  }
  return branch;
}

function wholeTree(session) {
  const seen = new Set(branchOf(session.head).map((turn) => turn.id));
  for (const { turn } of turns.values()) if (turn.conversation.id === session.id) seen.add(turn.id);
  return [...turns.values()].map((run) => run.turn).filter((turn) => seen.has(turn.id));
}

function startTurn(session, { input, client_turn_id = null, parent }) {
  for (const run of turns.values()) {
    const ours = run.turn.conversation.id === session.id;
    if (client_turn_id && ours && run.turn.splice.client_turn_id === client_turn_id) return run;
  }
  const text = inputText(input);
  if (/\bbusy\b/.test(text)) throw new Refusal(429, "engine_busy", "64 turns are waiting already");
  if (/\bfull\b/.test(text)) {
    const message =
      "the prompt has 8310 tokens; the context holds 8192 with the reply's first: 119 too many";
    throw new Refusal(400, "context_length_exceeded", message);
  }
  const turn = {
    id: newId("resp"),
    object: "response",
    created_at: now(),
    completed_at: null,
    status: "in_progress",
    background: false,
    error: null,
    incomplete_details: null,
    instructions: null,
    model: MODEL,
    previous_response_id: parent === undefined ? session.head : parent,
    conversation: { id: session.id },
    input: [
      {
        id: newId("msg"),
        type: "message",
        role: "user",
        status: "completed",
        content: [{ type: "input_text", text }],
      },
    ],
    output: [],
    store: true,
    metadata: {},
    usage: null,
    splice: { client_turn_id, metrics: null },
  };
  const run = { turn, text, events: [], listeners: new Set(), stopped: false };
  turns.set(turn.id, run);
  touch(session, turn.id);
  void play(run);
  return run;
}

function touch(session, head) {
  session.head = head;
  session.revision += 1;
  session.updated_at = now();
}

function emit(run, type, fields) {
  const event = { type, sequence_number: run.events.length, ...structuredClone(fields) };
  run.events.push(event);
  for (const listener of run.listeners) listener(event);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms * SPEED));

async function play(run) {
  const { turn, text } = run;
  const item_id = newId("msg");
  const at = { item_id, output_index: 0, content_index: 0 };
  const depth = branchOf(turn.previous_response_id).length;
  emit(run, "response.created", { response: turn });
  await pause(depth === 0 ? 120 : 40);
  emit(run, "response.in_progress", { response: turn });
  if (/\bfail\b/.test(text)) {
    return fail(run, "engine_unavailable", "the engine is restarting");
  }
  const item = {
    id: item_id,
    type: "message",
    role: "assistant",
    status: "in_progress",
    content: [],
  };
  emit(run, "response.output_item.added", { output_index: 0, item });
  const part = { type: "output_text", text: "", annotations: [], logprobs: [] };
  emit(run, "response.content_part.added", { ...at, part });
  await pause(/\bslow\b/.test(text) ? 4000 : depth === 0 ? 180 : 40);
  const pieces = replyTo(text).match(/\s*\S+|\s+$/g) ?? [];
  let said = "";
  for (const [i, delta] of pieces.entries()) {
    if (run.stopped) break;
    if (/\bdie\b/.test(text) && i === 30) {
      run.said = said;
      return fail(run, "engine_died", "the engine's process ended in the middle of the turn");
    }
    said += delta;
    emit(run, "response.output_text.delta", { ...at, delta, logprobs: [] });
    await pause(16);
  }
  finish(run, said, item, at, depth, pieces.length);
}

function finish(run, said, item, at, depth, tokens) {
  const { turn } = run;
  const part = { type: "output_text", text: said, annotations: [], logprobs: [] };
  const done = { ...item, status: run.stopped ? "incomplete" : "completed", content: [part] };
  emit(run, "response.output_text.done", { ...at, text: said, logprobs: [] });
  emit(run, "response.content_part.done", { ...at, part });
  emit(run, "response.output_item.done", { output_index: 0, item: done });
  const fresh = 14 + Math.ceil(run.text.length / 4);
  const reused = depth * 262;
  const metrics = {
    ttft_ms: depth === 0 ? 312.4 : 83.7,
    queue_ms: 1.2,
    total_ms: 16 * tokens,
    tokens_per_second: 61.2,
    input_tokens: reused + fresh,
    output_tokens: tokens,
    kv: {
      reused,
      device: reused,
      cpu: 0,
      disk: 0,
      computed: fresh,
      reason: null,
      diverged_at: null,
    },
    rows_computed: fresh + tokens,
  };
  if (depth === 0) metrics.kv.reason = "new";
  if (/\bevicted\b/.test(run.text)) {
    const total = reused + fresh;
    Object.assign(metrics.kv, {
      reused: 128,
      device: 128,
      computed: total - 128,
      reason: "evicted",
    });
  }
  emit(run, "splice:metrics", { response_id: turn.id, ...metrics });
  turn.output = [done];
  turn.status = run.stopped ? "cancelled" : "completed";
  turn.completed_at = now();
  turn.splice.metrics = metrics;
  touch(sessions.get(turn.conversation.id), turn.id);
  emit(run, run.stopped ? "response.incomplete" : "response.completed", { response: turn });
}

function fail(run, code, message) {
  run.turn.status = "failed";
  run.turn.error = { code, message };
  emit(run, "response.failed", { response: run.turn });
}

function regenerate(of, body) {
  const { turn, text } = runOf(of);
  const session = sessionOf(turn.conversation.id);
  return startTurn(session, { ...body, input: text, parent: turn.previous_response_id });
}

// --- REST ---------------------------------------------------------------------------------------

async function rest(method, url, body) {
  const [, , id, sub, turnId, verb] = url.pathname.split("/").filter(Boolean);
  if (id === undefined && method === "GET") return [200, listSessions(url.searchParams)];
  if (id === undefined) return [201, makeSession(body)];
  const session = sessionOf(id);
  if (sub === undefined && method === "GET") return [200, session];
  if (sub === undefined) {
    sessions.delete(id);
    return [200, { id, object: "session.deleted", deleted: true }];
  }
  if (sub === "fork") {
    const head = body.at ?? session.head;
    return [201, makeSession({ title: body.title ?? session.title, head, forked_from: head })];
  }
  if (sub !== "turns") throw new Refusal(404, "not_found", "there is nothing here");
  if (turnId === undefined && method === "GET") {
    return [200, url.searchParams.has("all") ? wholeTree(session) : branchOf(session.head)];
  }
  if (turnId === undefined) return [200, startTurn(session, body).turn];
  if (verb === "cancel") runOf(turnId).stopped = true;
  if (verb === "regenerate") return [200, regenerate(turnId, body).turn];
  return [200, runOf(turnId).turn];
}

function listSessions(query) {
  const all = [...sessions.values()].reverse().sort((a, b) => b.updated_at - a.updated_at);
  const from = query.has("after") ? all.findIndex((s) => s.id === query.get("after")) + 1 : 0;
  const data = all.slice(from, from + Number(query.get("limit") ?? 20));
  return {
    object: "list",
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: from + data.length < all.length,
  };
}

function ready() {
  return Date.now() < READY_AT
    ? [503, { state: "starting", detail: "reading the weights" }]
    : [200, { state: "ready", detail: null }];
}

async function bodyOf(request) {
  let text = "";
  for await (const chunk of request) text += chunk;
  return text ? JSON.parse(text) : {};
}

const server = createServer(async (request, response) => {
  const url = new URL(request.url, "http://localhost");
  const json = ([status, body]) => {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify(body));
  };
  if (url.pathname === "/readyz") return json(ready());
  if (url.pathname.startsWith("/v1/sessions")) {
    try {
      return json(await rest(request.method, url, await bodyOf(request)));
    } catch (error) {
      const refusal =
        error instanceof Refusal ? error : new Refusal(500, "internal", String(error));
      return json([refusal.status, refusal.body]);
    }
  }
  const file = normalize(join(PAGE, url.pathname === "/" ? "index.html" : url.pathname));
  if (!file.startsWith(PAGE) || !existsSync(file)) return json([404, {}]);
  response.writeHead(200, {
    "content-type": TYPES[extname(file)] ?? "application/octet-stream",
    "content-security-policy": CSP,
  });
  createReadStream(file).pipe(response);
});

// --- websocket ----------------------------------------------------------------------------------

const sockets = new WebSocketServer({ server, path: "/v1/ws" });
const dropped = new Set();

sockets.on("connection", (socket) => {
  const unsubscribe = [];
  const say = (frame) => socket.readyState === 1 && socket.send(JSON.stringify(frame));
  const subscribe = (run, after) => {
    const { id, conversation } = run.turn;
    const tell = (event) => {
      const frame = { ...event, conversation: conversation.id, response_id: id };
      const number = event.sequence_number;
      if (/\bhole\b/.test(run.text) && number === 20 && !dropped.has(id))
        return void dropped.add(id);
      say(frame);
      if (/\bdup\b/.test(run.text)) say(frame);
      if (/\bdrop\b/.test(run.text) && number === 40 && !dropped.has(id)) {
        dropped.add(id);
        socket.terminate();
      }
    };
    run.events.slice(after + 1).forEach(tell);
    run.listeners.add(tell);
    unsubscribe.push(() => run.listeners.delete(tell));
  };
  const handlers = {
    "response.create": (f) => subscribe(startTurn(sessionOf(f.conversation), f), -1),
    "response.regenerate": (f) =>
      subscribe(regenerate(f.response_id, { client_turn_id: f.client_turn_id }), -1),
    "response.cancel": (f) => {
      runOf(f.response_id).stopped = true;
    },
    "response.resume": (f) => subscribe(runOf(f.response_id), f.starting_after ?? -1),
    ping: (f) => say({ type: "pong", nonce: f.nonce }),
  };
  socket.on("message", (data) => {
    let frame = {};
    try {
      frame = JSON.parse(data);
      const handler = handlers[frame.type];
      if (!handler) throw new Refusal(400, "invalid_request", `there is no frame ${frame.type}`);
      handler(frame);
    } catch (error) {
      const refusal =
        error instanceof Refusal ? error : new Refusal(400, "invalid_request", String(error));
      const event_id = frame.event_id ?? null;
      say({ type: "error", status: refusal.status, ...refusal.body, event_id });
    }
  });
  socket.on("close", () => {
    for (const stop of unsubscribe) stop();
  });
});

server.listen(PORT, "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}/`);
});
