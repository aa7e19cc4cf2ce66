/**
 * The wire's types, generated from the API's document, and the readers that turn unknown JSON into
 * them. Only what the page uses is picked; a reader never throws on a missing optional field.
 */
import type * as wire from "./openapi";

export type Session = Pick<
  wire.SessionAnswer,
  | "id"
  | "title"
  | "instructions"
  | "model"
  | "model_state"
  | "reasoning"
  | "sampling"
  | "pinned"
  | "listed"
  | "auto_title"
  | "kv"
  | "active"
  | "head"
  | "forked_from"
  | "revision"
  | "created_at"
  | "updated_at"
>;

export type SessionPage = Pick<wire.SessionList, "has_more" | "last_id"> & { data: Session[] };

export type Sampling = wire.SamplingBody;
export type SessionPatch = Partial<wire.SessionPatch>;
export type Reasoning = wire.ReasoningPolicy;

export type Hit = Pick<
  wire.HitAnswer,
  "id" | "kind" | "conversation" | "response_id" | "role" | "snippet" | "highlights"
>;
export type HitPage = Pick<wire.HitList, "has_more" | "last_id"> & { data: Hit[] };

export type Status = wire.TurnAnswer["status"];

/** `retryable`: whether trying again can help, where the server says so. */
export type WireError = Pick<wire.Retryable, "code" | "message"> & { retryable?: boolean };

export type Metrics = Pick<
  wire.MetricsEvent,
  "ttft_ms" | "tokens_per_second" | "input_tokens" | "output_tokens"
> & { kv: Pick<wire.Reused, "reused" | "computed" | "reason" | "diverged_at"> };

interface Item {
  type: string;
  role?: string;
  content?: { type: string; text?: string }[] | string;
}

export interface Response
  extends Pick<
    wire.TurnAnswer,
    "id" | "created_at" | "status" | "incomplete_details" | "previous_response_id"
  > {
  error: WireError | null;
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

/** What happens to a watched session: `changed` for each revision, `state` for where it stands. */
export interface SessionFrame {
  type: (wire.SessionStateFrame | wire.SessionChangedFrame)["type"];
  conversation: string;
  revision: number;
  /** More has happened than can be told. */
  resync: boolean;
  /** As the server names it; one that the page does not know changes the session all the same. */
  change: wire.SessionChangedFrame["change"] | null;
  response_id: string | null;
  session: Session | null;
}

export interface Pong {
  type: "pong";
  nonce: unknown;
}

export type ServerFrame = TurnEvent | SessionFrame | ErrorFrame | Pong;

export type ClientFrame =
  | Exclude<wire.ClientFrame, wire.PingFrame>
  | (Pick<wire.PingFrame, "type"> & { nonce: number });

export function isTurnEvent(frame: ServerFrame): frame is TurnEvent {
  return "sequence_number" in frame;
}

export function isSessionFrame(frame: ServerFrame): frame is SessionFrame {
  return frame.type === "splice:session.state" || frame.type === "splice:session.changed";
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
  if (value.type === "splice:session.state" || value.type === "splice:session.changed")
    return readSessionFrame(value.type, value);
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

function readSessionFrame(
  type: SessionFrame["type"],
  value: Record<string, unknown>,
): SessionFrame | null {
  const { conversation, revision, change, response_id } = value;
  if (typeof conversation !== "string" || typeof revision !== "number") return null;
  return {
    ...{ type, conversation, revision, resync: value.resync === true },
    change: typeof change === "string" ? (change as SessionFrame["change"]) : null,
    response_id: typeof response_id === "string" ? response_id : null,
    session: isRecord(value.session) ? (value.session as unknown as Session) : null,
  };
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
