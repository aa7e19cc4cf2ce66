/**
 * The wire's types, as docs/protocol.md states them, and the readers that turn unknown JSON into
 * them. Only what the page uses is named; a reader never throws on a missing optional field.
 */

export interface Session {
  id: string;
  title: string | null;
  model: string;
  head: string | null;
  forked_from: string | null;
  revision: number;
  created_at: number;
  updated_at: number;
}

export interface SessionPage {
  data: Session[];
  has_more: boolean;
  last_id: string | null;
}

export type Status = "in_progress" | "completed" | "incomplete" | "cancelled" | "failed";

export interface WireError {
  code: string;
  message: string;
  /** Whether trying again can help, where the server says so. */
  retryable?: boolean;
}

export interface Metrics {
  ttft_ms: number | null;
  tokens_per_second: number | null;
  input_tokens: number;
  output_tokens: number;
  kv: {
    reused: number;
    computed: number;
    reason: string | null;
    diverged_at: number | null;
  };
}

interface Part {
  type: string;
  text?: string;
}

interface Item {
  type: string;
  role?: string;
  content?: Part[] | string;
}

export interface Response {
  id: string;
  created_at: number;
  status: Status;
  error: WireError | null;
  incomplete_details: { reason: string } | null;
  previous_response_id: string | null;
  conversation: { id: string } | null;
  input: Item[];
  output: Item[];
  splice?: { client_turn_id?: string | null; metrics?: Metrics | null };
}

/** What every event of a turn has; the rest is read by `type` (see `turn.ts`). */
export interface TurnEvent {
  type: string;
  sequence_number: number;
  response_id: string;
  conversation: string;
  response?: Response;
  delta?: string;
  text?: string;
  [more: string]: unknown;
}

export interface ErrorFrame {
  type: "error";
  status: number;
  error: WireError & { param: string | null; type: string };
  event_id: string | null;
}

export interface Pong {
  type: "pong";
  nonce: unknown;
}

export type ServerFrame = TurnEvent | ErrorFrame | Pong;

export type ClientFrame =
  | {
      type: "response.create";
      conversation: string;
      input: string;
      client_turn_id: string;
      parent: string | null;
      event_id: string;
    }
  | { type: "response.regenerate"; response_id: string; client_turn_id: string; event_id: string }
  | { type: "response.cancel"; response_id: string; event_id: string }
  | { type: "response.resume"; response_id: string; starting_after: number; event_id: string }
  | { type: "ping"; nonce: number };

export function isTurnEvent(frame: ServerFrame): frame is TurnEvent {
  return "sequence_number" in frame;
}

/** The frame, or null when the text is none: the page goes on with what it understands. */
export function readFrame(text: string): ServerFrame | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (!isRecord(value) || typeof value.type !== "string") return null;
  if (value.type === "error") {
    const error = isRecord(value.error) ? value.error : {};
    return {
      type: "error",
      status: typeof value.status === "number" ? value.status : 500,
      error: {
        type: String(error.type ?? "server_error"),
        code: String(error.code ?? "internal"),
        message: String(error.message ?? "The server reported an error."),
        param: typeof error.param === "string" ? error.param : null,
      },
      event_id: typeof value.event_id === "string" ? value.event_id : null,
    };
  }
  if (value.type === "pong") return { type: "pong", nonce: value.nonce };
  if (
    typeof value.sequence_number !== "number" ||
    typeof value.response_id !== "string" ||
    typeof value.conversation !== "string"
  ) {
    return null;
  }
  return value as TurnEvent;
}

/** The text of all messages among the items, a blank line between two. */
export function textOf(items: readonly Item[] | undefined): string {
  return (items ?? [])
    .map((item) =>
      typeof item.content === "string"
        ? item.content
        : (item.content ?? []).map((part) => part.text ?? "").join(""),
    )
    .join("\n\n");
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
