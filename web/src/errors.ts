/**
 * What went wrong, in words for a reader, and whether trying again can help. The codes are those
 * of docs/protocol.md; the page adds `offline` and `timeout` for what never reached the server, and
 * says of a prompt that is too long what of it is.
 */

export interface Trouble {
  readonly code: string;
  readonly title: string;
  /** The server's own sentence, where it says more than the title. */
  readonly detail: string | null;
  readonly retryable: boolean;
}

const TITLES: Record<string, string> = {
  offline: "The server can't be reached.",
  timeout: "The server did not answer in time.",
  context_length_exceeded: "This conversation is full.",
  message_too_long: "This message is too long by itself.",
  beginning_too_long: "The chat’s instructions and this message are too long together.",
  request_too_large: "This message is too large.",
  session_not_found: "This conversation no longer exists.",
  turn_not_found: "This reply no longer exists.",
  not_found: "This no longer exists.",
  session_busy: "A reply is still being written in this conversation.",
  revision_conflict: "The conversation changed in another window.",
  turn_not_ended: "The reply before is still being written.",
  too_many_streams: "Too many replies are being written at once.",
  engine_busy: "Too many conversations are waiting. Try again in a moment.",
  engine_unavailable: "The engine is restarting. Try again in a moment.",
  engine_died: "The engine stopped in the middle of this reply and is restarting.",
  sequence_failed: "This reply broke off inside the engine.",
  draining: "The server is shutting down.",
  store_unavailable: "The server can't reach its database.",
  unavailable: "The server is not available right now.",
  invalid_api_key: "The server does not take this key.",
  missing_scope: "This key is good, but not for this.",
  rate_limit_exceeded: "Too many requests in a minute. Try again in a moment.",
  too_many_turns: "As many replies are being written as you may have at once.",
  too_many_frames: "This page has sent too much at once.",
  too_many_sockets: "The server has as many connections as it can hold.",
  too_many_owner_sockets: "You have as many windows open as you may have at once.",
  internal: "Something went wrong on the server.",
};

const RETRYABLE = new Set([
  "offline",
  "timeout",
  "session_busy",
  "revision_conflict",
  "turn_not_ended",
  "engine_busy",
  "too_many_streams",
  "rate_limit_exceeded",
  "too_many_turns",
  "engine_unavailable",
  "engine_died",
  "sequence_failed",
  "draining",
  "store_unavailable",
  "unavailable",
  "too_many_frames",
  "too_many_sockets",
  "too_many_owner_sockets",
  "internal",
]);

/** Codes whose title already says all that a reader can use. */
const SELF_EXPLANATORY = new Set(["offline", "timeout", "engine_unavailable", "draining"]);

/** `retryable` is the server's word on it, where it gave one. */
export function trouble(code: string, message: string, retryable = RETRYABLE.has(code)): Trouble {
  const title = TITLES[code];
  if (title === undefined) {
    return { code, title: sentence(message), detail: null, retryable };
  }
  return {
    code,
    title,
    detail: message && !SELF_EXPLANATORY.has(code) ? sentence(message) : null,
    retryable,
  };
}

/** What to do about it, where the page knows. */
export function advice(code: string): string | null {
  switch (code) {
    case "context_length_exceeded":
      return "Start a new chat, or fork from an earlier turn.";
    case "message_too_long":
    case "request_too_large":
      return "Shorten it and send it again.";
    case "beginning_too_long":
      return "Shorten one of them and send it again.";
    default:
      return null;
  }
}

/**
 * What a prompt that is too long has too much of. `before`: the tokens of what the message follows,
 * null where they are not known; `instructed`: the chat has instructions, which begin it.
 */
export function overflow(full: Trouble, before: number | null, instructed: boolean): Trouble {
  const over = Number(/([\d,]+) too many/.exec(full.detail ?? "")?.[1]?.replaceAll(",", "") ?? 0);
  // So many would be too many without all that was said before.
  if (before === null || over <= before) return full;
  const isTogether = before === 0 && instructed;
  return trouble(isTogether ? "beginning_too_long" : "message_too_long", full.detail ?? "");
}

function sentence(message: string): string {
  const text = message.trim();
  if (!text) return "Something went wrong.";
  const capital = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(capital) ? capital : `${capital}.`;
}
