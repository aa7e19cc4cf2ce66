/** Numbers and names as a reader sees them. Pure. */
import type { Metrics, Session } from "./protocol";

const TITLE_LENGTH = 60;

/** The first words of a message, as a title: one line, cut at a word. */
export function titleOf(text: string): string {
  const line = text.replace(/\s+/g, " ").trim();
  if (line.length <= TITLE_LENGTH) return line;
  const cut = line.slice(0, TITLE_LENGTH);
  const space = cut.lastIndexOf(" ");
  return `${space > TITLE_LENGTH / 2 ? cut.slice(0, space) : cut}…`;
}

/** The title, else the first words where the turns are known, else a name that says so. */
export function nameOf(session: Session, firstInput: string | undefined): string {
  return session.title?.trim() || titleOf(firstInput ?? "") || "Untitled chat";
}

/** What the loaded model has to do with a chat's tokens; null when they are its own. */
export function modelNote(session: Session): string | null {
  switch (session.model_state) {
    case "other_model":
      return `Written with ${session.model}. The next message reads the whole chat anew, once.`;
    case "fingerprint_changed":
      // Imported, or of a model that has changed: the server does not tell which.
      return "The loaded model has not read this chat yet. The next message reads all of it, once.";
    default:
      return null;
  }
}

/** The same in a word or two, for the list. */
export function modelMark(session: Session): string | null {
  switch (session.model_state) {
    case "other_model":
      return "Of another model";
    case "fingerprint_changed":
      return "To be read anew";
    default:
      return null;
  }
}

export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  return `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0)} s`;
}

export function rate(perSecond: number): string {
  return `${perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond)} tokens/s`;
}

export function count(value: number): string {
  return value.toLocaleString("en");
}

export function reuse(metrics: Metrics): string {
  const total = metrics.kv.reused + metrics.kv.computed;
  return `${count(metrics.kv.reused)} of ${count(total)} tokens reused`;
}

/** Why less was reused than could have been; null when nothing was lost (one is always computed). */
export function missReason(metrics: Metrics): string | null {
  const { reason, diverged_at: at, computed } = metrics.kv;
  if (computed <= 1) return null;
  switch (reason) {
    case null:
      return null;
    case "new":
      return "new conversation";
    case "evicted":
      return "the rest had left the cache";
    case "diverged":
      return at === null ? "the history changed" : `the history changed at token ${count(at)}`;
    case "fingerprint_changed":
      return "the model changed";
    case "salt":
      return "it belongs to another owner";
    case "load_failed":
      return "the stored state could not be read";
    case "recompute_cheaper":
      return "computing was quicker than loading";
    default:
      return reason.replaceAll("_", " ");
  }
}

export interface Place {
  readonly kind: "device" | "cpu" | "disk" | "none";
  readonly short: string;
  readonly long: string;
}

const PLACES = { device: "In memory", cpu: "In host memory", disk: "On disk" } as const;

/**
 * Where a chat's state is; null where nothing can be said. `live` while a reply comes. `now` in
 * milliseconds.
 */
export function placeOf(session: Session, live: boolean, now: number): Place | null {
  const kv = session.kv;
  // A fork without a turn of its own goes on with its origin's state, wherever that is.
  const isFresh = session.head === null || (!kv && session.head === session.forked_from);
  if (isFresh && !live) return null;
  if (!kv) {
    if (live) return { kind: "device", short: PLACES.device, long: PLACES.device };
    const long = "Not cached: the next message computes the whole chat again";
    return { kind: "none", short: "Not cached", long };
  }
  const kind = live ? "device" : kv.tier;
  const name = PLACES[kind];
  const size = bytes(kv.num_bytes);
  const age = ago(Math.max(0, now / 1_000 - kv.used_at));
  const long = `${name}: ${count(kv.num_tokens)} tokens, ${size}, last used ${age}`;
  return { kind, short: `${name} · ${size}`, long };
}

export function bytes(value: number): string {
  let size = value;
  for (const unit of ["bytes", "KB", "MB"]) {
    if (size < 1_024)
      return `${size < 10 && unit !== "bytes" ? size.toFixed(1) : Math.round(size)} ${unit}`;
    size /= 1_024;
  }
  return `${size.toFixed(1)} GB`;
}

function ago(seconds: number): string {
  if (seconds < 60) return "just now";
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

/** Today, yesterday, this week, …: the headings of the list. `now` in milliseconds. */
export function ageGroup(seconds: number, now: number): string {
  const today = new Date(now);
  today.setHours(0, 0, 0, 0);
  const days = (today.getTime() - seconds * 1_000) / 86_400_000;
  if (days <= 0) return "Today";
  if (days <= 1) return "Yesterday";
  if (days <= 7) return "Last 7 days";
  return days <= 30 ? "Last 30 days" : "Earlier";
}
