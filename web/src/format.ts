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
      return "The model has changed since. The next message reads the whole chat anew, once.";
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

/** Why less was reused than could have been; null when nothing was lost. */
export function missReason(metrics: Metrics): string | null {
  const { reason, diverged_at: at } = metrics.kv;
  switch (reason) {
    case null:
      return null;
    case "new":
      return "new conversation";
    case "evicted":
      return "the rest was evicted to make room";
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
