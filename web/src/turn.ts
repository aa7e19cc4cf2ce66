/**
 * One turn as the page knows it, and how the wire's events change it. Pure.
 *
 * Invariant: `fold` applied to any prefix of a turn's events, then to any overlapping rest, gives
 * what the whole row gives. `seen` is the last number folded; `follows` tells what may be folded.
 */
import {
  type Metrics,
  type Response,
  type Status,
  type TurnEvent,
  textOf,
  type WireError,
} from "./protocol";

export interface Turn {
  readonly id: string;
  /** The session it was made in; a fork shows its origin's turns too. */
  readonly session: string;
  readonly parent: string | null;
  readonly createdAt: number;
  readonly clientTurnId: string | null;
  readonly input: string;
  readonly text: string;
  readonly status: Status;
  /** `max_output_tokens` or `interrupted`, of an incomplete turn. */
  readonly reason: string | null;
  readonly error: WireError | null;
  readonly metrics: Metrics | null;
  /** The last sequence number folded; -1: none, everything is still to come. */
  readonly seen: number;
}

export type Follow = "next" | "duplicate" | "gap";

const OPEN: ReadonlySet<Status> = new Set<Status>(["queued", "in_progress"]);
const TERMINAL = new Set(["response.completed", "response.incomplete", "response.failed"]);

/**
 * Where an event stands after what the turn has seen. An end is always next: it brings the whole
 * reply, and after a crash of the server its number may lie behind what was seen, for the last
 * words were shown before they were stored.
 */
export function follows(seen: number, event: TurnEvent): Follow {
  if (TERMINAL.has(event.type)) return "next";
  if (event.sequence_number <= seen) return "duplicate";
  return event.sequence_number === seen + 1 ? "next" : "gap";
}

/** A turn as REST gives it. An active one starts empty: its events will all be resumed. */
export function turnFromResponse(response: Response, session: string): Turn {
  const active = OPEN.has(response.status);
  return {
    id: response.id,
    session: response.conversation?.id ?? session,
    parent: response.previous_response_id ?? null,
    createdAt: response.created_at,
    clientTurnId: response.splice?.client_turn_id ?? null,
    input: textOf(response.input),
    text: active ? "" : textOf(response.output),
    status: response.status,
    reason: response.incomplete_details?.reason ?? null,
    error: response.error ?? null,
    metrics: response.splice?.metrics ?? null,
    seen: -1,
  };
}

export function isActive(turn: Turn): boolean {
  return OPEN.has(turn.status);
}

/** The turn after one event, which must follow (`follows` is "next"). */
export function fold(turn: Turn, event: TurnEvent): Turn {
  const seen = event.sequence_number;
  switch (event.type) {
    case "response.output_text.delta":
      return { ...turn, seen, text: turn.text + (event.delta ?? "") };
    case "response.output_text.done":
      return { ...turn, seen, text: event.text ?? turn.text };
    case "splice:metrics":
      return { ...turn, seen, metrics: event as unknown as Metrics };
    case "response.completed":
    case "response.incomplete":
    case "response.failed":
      return { ...ended(turn, event), seen };
    default:
      // Created, in progress, items and parts say nothing the page does not know; types that a
      // later server adds still count, so that the numbers stay without a gap.
      return { ...turn, seen };
  }
}

function ended(turn: Turn, event: TurnEvent): Turn {
  const response = event.response;
  if (!response) return { ...turn, status: terminalStatus(event.type) };
  const text = textOf(response.output);
  return {
    ...turn,
    status: OPEN.has(response.status) ? terminalStatus(event.type) : response.status,
    // A failed turn may come without output; what was read stays readable.
    text: text || turn.text,
    reason: response.incomplete_details?.reason ?? null,
    error: response.error ?? null,
    metrics: response.splice?.metrics ?? turn.metrics,
  };
}

function terminalStatus(type: string): Status {
  if (type === "response.completed") return "completed";
  return type === "response.failed" ? "failed" : "incomplete";
}
