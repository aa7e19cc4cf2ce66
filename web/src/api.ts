/** The REST calls the page makes. Every failure is an `ApiError` with a stable code. */
import { type Access, bearer } from "./access";
import {
  type HitPage,
  isRecord,
  type Response,
  type Session,
  type SessionPage,
  type SessionPatch,
} from "./protocol";

export class ApiError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

export interface Readiness {
  readonly ready: boolean;
  /** The state as the server names it; null when it could not be asked. */
  readonly state: string | null;
  /** How far it is, or why it never will be. */
  readonly detail: string | null;
}

export type ExportFormat = "json" | "markdown";

const TIMEOUT_MS = 20_000;
const WARM_WITHIN_S = 10;

export interface Api {
  listSessions(after?: string): Promise<SessionPage>;
  getSession(id: string): Promise<Session>;
  createSession(fields: SessionPatch): Promise<Session>;
  changeSession(id: string, change: SessionPatch): Promise<Session>;
  deleteSession(id: string): Promise<void>;
  /** Takes a deletion back; 404 when it is too late. */
  restoreSession(id: string): Promise<Session>;
  /** Brings its state onto the device; resolves when it is there, or could not be in time. */
  warm(session: string): Promise<void>;
  setHead(session: string, turn: string): Promise<Session>;
  search(words: string, after?: string): Promise<HitPage>;
  exportSession(id: string, format: ExportFormat): Promise<Blob>;
  /** `file` is what `exportSession` gave as JSON. */
  importSession(file: unknown): Promise<Session>;
  listTurns(session: string): Promise<Response[]>;
  fork(session: string, at: string, title: string | null): Promise<Session>;
  readiness(): Promise<Readiness>;
  /** Rejects where the server would not let this key chat. */
  checkKey(key: string): Promise<void>;
  /** What a websocket is opened with where a key is needed; good once, and not for long. */
  ticket(): Promise<string>;
}

/** `base` is what the calls are relative to, so that the page works below a path prefix. */
export function createApi(base: string, access: Access): Api {
  const call = async (method: string, url: string, body?: unknown, how: How = {}) => {
    const key = access.key.peek();
    try {
      return await ask(method, url, key, body, how);
    } catch (error) {
      if (isRefusal(error)) access.refused(key, error.status);
      throw error;
    }
  };
  const path = (...parts: string[]) =>
    `${base}v1/sessions${parts.map((part) => `/${part}`).join("")}`;
  const id = encodeURIComponent;
  return {
    async listSessions(after) {
      const query = after === undefined ? "" : `&after=${id(after)}`;
      return (await call("GET", `${path()}?limit=50&pinned_first=true${query}`)) as SessionPage;
    },
    async getSession(session) {
      return (await call("GET", path(id(session)))) as Session;
    },
    async createSession(fields) {
      return (await call("POST", path(), fields)) as Session;
    },
    async changeSession(session, change) {
      return (await call("PATCH", path(id(session)), change)) as Session;
    },
    async deleteSession(session) {
      await call("DELETE", path(id(session)));
    },
    async restoreSession(session) {
      return (await call("POST", path(id(session), "restore"))) as Session;
    },
    async warm(session) {
      await call("POST", path(id(session), "warm"), { deadline_s: WARM_WITHIN_S });
    },
    async setHead(session, turn) {
      // keepalive: what was chosen last in a page that closes is still chosen.
      const how = { keepalive: true };
      return (await call("POST", path(id(session), "head"), { turn }, how)) as Session;
    },
    async search(words, after) {
      const query = after === undefined ? "" : `&after=${id(after)}`;
      return (await call("GET", `${base}v1/search?limit=20&q=${id(words)}${query}`)) as HitPage;
    },
    async exportSession(session, format) {
      const file = await call("GET", `${path(id(session), "export")}?format=${format}`, undefined, {
        read: (answer) => answer.blob(),
      });
      return file as Blob;
    },
    async importSession(file) {
      return (await call("POST", path("import"), file)) as Session;
    },
    async listTurns(session) {
      const body = await call("GET", `${path(id(session), "turns")}?all=true`);
      // "As a list": bare, or in the list object that the sessions come in.
      return (isRecord(body) && Array.isArray(body.data) ? body.data : body) as Response[];
    },
    async fork(session, at, title) {
      const body = title === null ? { at } : { at, title };
      return (await call("POST", path(id(session), "fork"), body)) as Session;
    },
    async readiness() {
      return readReadiness(`${base}readyz`);
    },
    async checkKey(key) {
      await ask("GET", `${path()}?limit=1`, key);
    },
    async ticket() {
      const body = await call("POST", `${base}v1/ws-tickets`);
      return isRecord(body) && typeof body.ticket === "string" ? body.ticket : "";
    },
  };
}

interface How {
  /** It goes on when the page closes. */
  keepalive?: boolean;
  read?: (answer: globalThis.Response) => Promise<unknown>;
}

function isRefusal(error: unknown): error is ApiError {
  return error instanceof ApiError && (error.status === 401 || error.code === "missing_scope");
}

async function ask(
  method: string,
  url: string,
  key: string | null,
  body?: unknown,
  { read = readJson, keepalive = false }: How = {},
): Promise<unknown> {
  const request: RequestInit = { method, signal: AbortSignal.timeout(TIMEOUT_MS), keepalive };
  request.headers = bearer(key);
  if (body !== undefined) {
    request.headers = { ...bearer(key), "content-type": "application/json" };
    request.body = JSON.stringify(body);
  }
  const answer = await send(url, request);
  if (answer.ok) return read(answer);
  const json = await readJson(answer);
  const error = isRecord(json) && isRecord(json.error) ? json.error : {};
  throw new ApiError(
    typeof error.code === "string" ? error.code : codeOf(answer.status),
    typeof error.message === "string" ? error.message : "",
    answer.status,
  );
}

async function send(url: string, request: RequestInit): Promise<globalThis.Response> {
  try {
    return await fetch(url, request);
  } catch (error) {
    const timedOut = error instanceof DOMException && error.name === "TimeoutError";
    throw new ApiError(timedOut ? "timeout" : "offline", "", 0);
  }
}

async function readJson(answer: globalThis.Response): Promise<unknown> {
  try {
    return await answer.json();
  } catch {
    return null;
  }
}

/** A code for answers that are not ours, a proxy's for instance. */
function codeOf(status: number): string {
  if (status === 404) return "not_found";
  if (status === 413) return "request_too_large";
  return status >= 502 && status <= 504 ? "unavailable" : "internal";
}

async function readReadiness(url: string): Promise<Readiness> {
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(5_000), cache: "no-store" });
    const body = await readJson(answer);
    const { state, detail } = isRecord(body) ? body : {};
    return { ready: answer.ok, state: textOrNull(state), detail: textOrNull(detail) };
  } catch {
    return { ready: false, state: null, detail: null };
  }
}

function textOrNull(value: unknown): string | null {
  return typeof value === "string" && value ? value : null;
}
