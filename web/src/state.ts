/**
 * Everything the page knows, as signals; no DOM, no I/O.
 *
 * Each turn has a signal of its own, so that a delta re-renders one reply and not the list. A turn
 * is kept once though a fork shows it too; sessions hold ids. Invariant: an ended turn never
 * becomes active again, and a snapshot never takes back what events have already told.
 */
import { batch, type Signal, signal } from "@preact/signals";
import type { Trouble } from "./errors";
import { NO_SETTINGS, type Settings } from "./library";
import type { Hit, Session } from "./protocol";
import type { Link } from "./socket";
import { isActive, type Turn } from "./turn";

/** What the reader asked for and the server has not confirmed yet. */
export interface Outgoing {
  /** The `client_turn_id`, and the frame's `event_id`. */
  readonly id: string;
  readonly session: string;
  /** The turn it follows (null: a new beginning); undefined: whichever is the head there. */
  readonly parent: string | null | undefined;
  readonly text: string;
  /** The turn whose sibling this is to be, when it is a regeneration. */
  readonly regenerates: string | null;
  /** The cut turn that this goes on with. */
  readonly continues: string | null;
  /** Stop was pressed before the turn had an id. */
  readonly stop: boolean;
  readonly trouble: Trouble | null;
}

export interface Opening {
  readonly text: string;
  readonly trouble: Trouble | null;
  readonly isMade: boolean;
}

export type Load = "loading" | "ready" | Trouble;
export type Health =
  | "checking"
  | "ready"
  | "loading"
  | "restarting"
  | "draining"
  | "failed"
  | "unreachable";

export interface Toast {
  readonly id: number;
  readonly text: string;
  readonly action: ToastAction | null;
}

export interface ToastAction {
  readonly label: string;
  /** It takes back what was done last: a key does it, too. */
  readonly undoes?: boolean;
  /** Who works by keyboard is taken to it. */
  readonly takesFocus?: boolean;
  run(): void;
}

/** What was looked for, and what was found so far. */
export interface Search {
  readonly words: string;
  readonly load: Load;
  readonly hits: readonly Hit[];
  readonly hasMore: boolean;
}

/** What lies over the page; a session of null is the chat that does not exist yet. */
export type Dialog =
  | { readonly kind: "keys" }
  | { readonly kind: "rename"; readonly session: string }
  | { readonly kind: "settings"; readonly session: string | null };

export class State {
  readonly sessions = signal<readonly Session[]>([]);
  readonly hasMoreSessions = signal(false);
  readonly sessionsLoad = signal<Load>("loading");
  /** Deleted here: a list that was asked for before does not bring them back. */
  readonly gone = new Set<string>();
  readonly search = signal<Search | null>(null);
  /** What the next new chat is to be made with. */
  readonly newSettings = signal<Settings>(NO_SETTINGS);
  readonly dialog = signal<Dialog | null>(null);
  /** The session on screen; null is the new chat. */
  readonly current = signal<string | null>(null);
  /** The turn that the reader came for, until it is in view. */
  readonly sought = signal<string | null>(null);
  readonly outgoing = signal<readonly Outgoing[]>([]);
  /** The first message of a chat whose session is being made, or is made and not on screen yet. */
  readonly opening = signal<Opening | null>(null);
  readonly stopping = signal<ReadonlySet<string>>(new Set());
  /** Active turns by id → the sessions they run in, for the list's marks. */
  readonly live = signal<ReadonlyMap<string, string>>(new Map());
  /** Sessions with a reply that ended while another was on screen. */
  readonly unread = signal<ReadonlySet<string>>(new Set());
  readonly toasts = signal<readonly Toast[]>([]);
  readonly link = signal<Link>("stopped");
  /** Whether the machine has a network at all, as the browser sees it. */
  readonly online = signal(true);
  readonly health = signal<Health>("checking");
  readonly healthDetail = signal<string | null>(null);
  /** The turn whose message is being edited. */
  readonly editing = signal<string | null>(null);
  /** How often something was sent: each time the end comes into view. */
  readonly sends = signal(0);
  /** What stands in the message box. */
  readonly draft = signal("");
  readonly drawer = signal(false);

  readonly #turns = new Map<string, Signal<Turn>>();
  readonly #members = new Map<string, Signal<readonly string[]>>();
  readonly #choices = new Map<string, Signal<ReadonlyMap<string, string>>>();
  readonly #loads = new Map<string, Signal<Load>>();

  /** Another reader may be coming: nothing of this one's stays. */
  forget(): void {
    batch(() => {
      this.#turns.clear();
      this.#members.clear();
      this.#choices.clear();
      this.#loads.clear();
      this.gone.clear();
      this.search.value = null;
      this.newSettings.value = NO_SETTINGS;
      this.dialog.value = null;
      this.sought.value = null;
      this.editing.value = null;
      this.sessions.value = [];
      this.hasMoreSessions.value = false;
      this.sessionsLoad.value = "loading";
      this.current.value = null;
      this.outgoing.value = [];
      this.opening.value = null;
      this.stopping.value = new Set();
      this.live.value = new Map();
      this.unread.value = new Set();
      this.toasts.value = [];
      this.draft.value = "";
    });
  }

  turn(id: string): Signal<Turn> | undefined {
    return this.#turns.get(id);
  }

  members(session: string): Signal<readonly string[]> {
    return made(this.#members, session, []);
  }

  choices(session: string): Signal<ReadonlyMap<string, string>> {
    return made(this.#choices, session, new Map<string, string>());
  }

  load(session: string): Signal<Load> {
    return made<Load>(this.#loads, session, "loading");
  }

  session(id: string): Session | undefined {
    return this.sessions.value.find((session) => session.id === id);
  }

  /** Whether a reply is being written there, by whomever: of turns known here their events tell. */
  isLive(session: Session): boolean {
    const here = [...this.live.value.values()].includes(session.id);
    return here || session.active.some((turn) => !this.#turns.has(turn));
  }

  /** The turns of a session without following their texts: id, parent and age never change. */
  structure(session: string): readonly Turn[] {
    return this.members(session).value.flatMap((id) => this.#turns.get(id)?.peek() ?? []);
  }

  /** An event's result: always newer than what was there. */
  putTurn(turn: Turn, session: string = turn.session): void {
    batch(() => {
      const known = this.#turns.get(turn.id);
      if (known) known.value = turn;
      else this.#turns.set(turn.id, signal(turn));
      const members = this.members(session);
      if (!members.peek().includes(turn.id)) members.value = [...members.peek(), turn.id];
      this.#mark(turn);
    });
  }

  /** A snapshot from REST: older than live events, newer than an active turn without any. */
  putTurns(session: string, turns: readonly Turn[]): void {
    batch(() => {
      for (const turn of turns) {
        const known = this.#turns.get(turn.id)?.peek();
        if (known && (!isActive(known) || (isActive(turn) && known.seen >= 0))) continue;
        this.putTurn(turn, session);
      }
      const given = turns.map((turn) => turn.id);
      const made = this.members(session)
        .peek()
        .filter((id) => !given.includes(id));
      this.members(session).value = [...given, ...made];
    });
  }

  /** An answer that was overtaken by a newer one changes nothing. */
  putSession(session: Session): void {
    const known = this.sessions.peek().find((other) => other.id === session.id);
    if (known && known.revision > session.revision) return;
    if (known && known.pinned === session.pinned && known.updated_at === session.updated_at) {
      // Where the server put it: it tells moments apart that share a second.
      this.sessions.value = this.sessions.peek().map((one) => (one === known ? session : one));
      return;
    }
    const rest = this.sessions.peek().filter((other) => other.id !== session.id);
    this.sessions.value = [session, ...rest].sort(byUse);
  }

  /**
   * The list's beginning, asked for when there was `asked`; `isWhole`: nothing comes behind it. What
   * was learnt since then stays, and so does what stands behind that beginning.
   */
  putList(beginning: readonly Session[], isWhole: boolean, asked: readonly Session[]): void {
    const then = new Map(asked.map((one) => [one.id, one]));
    const listed = new Map<string, Session>();
    for (const one of beginning) if (!this.gone.has(one.id)) listed.set(one.id, one);
    const end = isWhole ? undefined : beginning.at(-1);
    for (const known of this.sessions.peek()) {
      const before = then.get(known.id);
      const given = listed.get(known.id);
      const isNews = known !== before && known.revision >= (given?.revision ?? 0);
      const isBehind = end !== undefined && byUse(end, known) <= 0;
      const isUnlisted = !known.listed && this.current.peek() === known.id;
      if (isNews || (!given && (isBehind || isUnlisted))) listed.set(known.id, known);
    }
    this.sessions.value = [...listed.values()].sort(byUse);
  }

  /** It was used just now. */
  raiseSession(id: string): void {
    const known = this.session(id);
    if (!known) return;
    // The server's clock is not ours; the most recent known second puts it on top all the same.
    const newest = Math.max(...this.sessions.peek().map((one) => one.updated_at));
    batch(() => {
      this.dropSession(id);
      this.putSession({ ...known, updated_at: newest });
    });
  }

  dropSession(id: string): void {
    this.sessions.value = this.sessions.peek().filter((session) => session.id !== id);
  }

  choose(session: string, key: string, turn: string | null): void {
    const choices = new Map(this.choices(session).peek());
    if (turn === null) choices.delete(key);
    else choices.set(key, turn);
    this.choices(session).value = choices;
  }

  putOutgoing(outgoing: Outgoing): void {
    if (!outgoing.trouble && !outgoing.stop) this.sends.value = this.sends.peek() + 1;
    const rest = this.outgoing.peek().filter((other) => other.id !== outgoing.id);
    this.outgoing.value = [...rest, outgoing];
  }

  dropOutgoing(id: string): void {
    this.outgoing.value = this.outgoing.peek().filter((other) => other.id !== id);
  }

  setStopping(turn: string, stopping: boolean): void {
    if (this.stopping.peek().has(turn) === stopping) return;
    const all = new Set(this.stopping.peek());
    if (stopping) all.add(turn);
    else all.delete(turn);
    this.stopping.value = all;
  }

  setUnread(session: string, unread: boolean): void {
    if (this.unread.peek().has(session) === unread) return;
    const all = new Set(this.unread.peek());
    if (unread) all.add(session);
    else all.delete(session);
    this.unread.value = all;
  }

  #mark(turn: Turn): void {
    const live = this.live.peek();
    if (isActive(turn) === live.has(turn.id)) return;
    const next = new Map(live);
    if (isActive(turn)) next.set(turn.id, turn.session);
    else {
      next.delete(turn.id);
      this.setStopping(turn.id, false);
      if (this.current.peek() !== turn.session) this.setUnread(turn.session, true);
    }
    this.live.value = next;
  }
}

/** The list's order; what shares a second stays as the server had it. */
function byUse(a: Session, b: Session): number {
  return Number(b.pinned) - Number(a.pinned) || b.updated_at - a.updated_at;
}

function made<T>(all: Map<string, Signal<T>>, key: string, first: T): Signal<T> {
  let found = all.get(key);
  if (!found) {
    found = signal(first);
    all.set(key, found);
  }
  return found;
}
