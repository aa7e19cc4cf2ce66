/**
 * What the reader can do, in terms of the state, the REST calls and the streams. No DOM.
 *
 * A chat gets its session when its first message is sent, so that opening the page makes nothing.
 */
import { type Api, ApiError } from "./api";
import type { Drafts } from "./drafts";
import { type Trouble, trouble } from "./errors";
import { titleOf } from "./format";
import type { HealthWatch } from "./health";
import type { Session } from "./protocol";
import type { Outgoing, State } from "./state";
import type { Streams } from "./streams";
import { pathOf } from "./tree";
import { isActive, type Turn, turnFromResponse } from "./turn";

export interface ChatOptions {
  state: State;
  api: Api;
  streams: Streams;
  drafts: Drafts;
  health: HealthWatch;
  /** Puts the session into the address; the page then follows the address. */
  navigate(session: string | null): void;
  newId(): string;
  later(run: () => void, ms: number): unknown;
  cancelLater(timer: unknown): void;
}

const UNDO_MS = 6_000;

export class Chat {
  #nextToast = 1;
  /** Deleted on screen, and on the server once their timer has run. */
  #deleting = new Map<string, unknown>();

  constructor(private readonly options: ChatOptions) {}

  async loadSessions(): Promise<void> {
    const { state, api } = this.options;
    try {
      const page = await api.listSessions();
      state.sessions.value = page.data.filter((session) => !this.#deleting.has(session.id));
      state.hasMoreSessions.value = page.has_more;
      state.sessionsLoad.value = "ready";
    } catch (error) {
      if (state.sessionsLoad.peek() !== "ready") state.sessionsLoad.value = this.#trouble(error);
    }
  }

  async loadMoreSessions(): Promise<void> {
    const { state, api } = this.options;
    const last = state.sessions.peek().at(-1);
    if (!last) return;
    try {
      const page = await api.listSessions(last.id);
      const known = new Set(state.sessions.peek().map((session) => session.id));
      const fresh = page.data.filter((one) => !known.has(one.id) && !this.#deleting.has(one.id));
      state.sessions.value = [...state.sessions.peek(), ...fresh];
      state.hasMoreSessions.value = page.has_more;
    } catch (error) {
      this.toast(this.#trouble(error).title);
    }
  }

  /** Shows a session (null: the new chat) and reads its turns; active ones are resumed. */
  show(session: string | null): void {
    const { state } = this.options;
    state.current.value = session;
    state.draft.value = this.options.drafts.get(session);
    state.drawer.value = false;
    if (session === null) return;
    state.setUnread(session, false);
    void this.loadTurns(session);
  }

  async loadTurns(session: string): Promise<void> {
    const { state, api, streams } = this.options;
    const load = state.load(session);
    if (load.peek() !== "ready") load.value = "loading";
    try {
      const [fresh, responses] = await Promise.all([
        api.getSession(session),
        api.listTurns(session),
      ]);
      if (!this.#deleting.has(session)) state.putSession(fresh);
      const unheard = responses.filter((response) => !state.live.peek().has(response.id));
      state.putTurns(
        session,
        responses.map((response) => turnFromResponse(response, session)),
      );
      for (const response of unheard) {
        const turn = state.turn(response.id)?.peek();
        if (!turn) continue;
        const comes = streams.confirm(turn);
        if (isActive(turn) && !comes) streams.resume(turn);
      }
      load.value = "ready";
    } catch (error) {
      const what = this.#trouble(error);
      if (load.peek() !== "ready") load.value = what;
    }
  }

  /** Looks for what other windows did: cheap, for when the page is seen again. */
  async refresh(): Promise<void> {
    const { state } = this.options;
    const id = state.current.peek();
    const before = id === null ? undefined : state.session(id)?.revision;
    await this.loadSessions();
    if (id === null) return;
    const unread = state.load(id).peek() !== "ready";
    if (unread || state.session(id)?.revision !== before) await this.loadTurns(id);
  }

  /** The connection is back: what could not be read before is read now. */
  recover(): void {
    if (this.options.state.sessionsLoad.peek() !== "loading") void this.refresh();
  }

  send(text: string): void {
    const { state, streams } = this.options;
    const session = state.current.peek();
    if (session === null) {
      void this.#open(text);
      return;
    }
    for (const failed of state.outgoing.peek()) {
      if (failed.session === session && failed.trouble) state.dropOutgoing(failed.id);
    }
    this.#touch(session);
    streams.request(this.#outgoing(session, this.#parentForNext(session), text));
  }

  retryOpening(): void {
    const opening = this.options.state.opening.peek();
    if (opening) void this.#open(opening.text);
  }

  /** Gives an unsent message back for editing. */
  takeBack(outgoing: Outgoing | null): string {
    const { state } = this.options;
    const text = outgoing?.text ?? state.opening.peek()?.text ?? "";
    if (outgoing) state.dropOutgoing(outgoing.id);
    else state.opening.value = null;
    return text;
  }

  retry(outgoing: Outgoing): void {
    this.options.streams.request({ ...outgoing, trouble: null, stop: false });
  }

  regenerate(turn: Turn): void {
    const request = this.#outgoing(turn.session, turn.parent, turn.input);
    this.options.streams.request({ ...request, regenerates: turn.id });
  }

  /** The same place in the conversation with another message. */
  edit(turn: Turn, text: string): void {
    this.options.streams.request(this.#outgoing(turn.session, turn.parent, text));
  }

  /** Stops what is being written in the session on screen; what came so far is kept. */
  stop(): void {
    const { state, streams } = this.options;
    const session = state.current.peek();
    for (const [turn, where] of state.live.peek()) if (where === session) streams.cancel(turn);
    for (const outgoing of state.outgoing.peek()) {
      if (outgoing.session === session && !outgoing.trouble) {
        state.putOutgoing({ ...outgoing, stop: true });
      }
    }
  }

  async fork(turn: Turn): Promise<void> {
    const { state, api, navigate } = this.options;
    const origin = state.session(state.current.peek() ?? turn.session);
    const first = state.structure(turn.session)[0]?.input;
    const title = origin?.title ?? (first ? titleOf(first) : null);
    try {
      const fork = await api.fork(turn.session, turn.id, title);
      state.putSession(fork);
      navigate(fork.id);
      this.toast("Forked. It continues without recomputing its history.");
    } catch (error) {
      this.toast(this.#trouble(error).title, { label: "Retry", run: () => void this.fork(turn) });
    }
  }

  /** Hides the session at once and deletes it when the time for undo is over. */
  delete(session: Session): void {
    const { state, navigate } = this.options;
    state.dropSession(session.id);
    if (state.current.peek() === session.id) navigate(null);
    const timer = this.options.later(() => void this.#finishDelete(session), UNDO_MS);
    this.#deleting.set(session.id, timer);
    const undo = () => {
      this.options.cancelLater(this.#deleting.get(session.id));
      this.#deleting.delete(session.id);
      state.putSession(session);
    };
    this.toast("Chat deleted", { label: "Undo", run: undo });
  }

  /** The page is going: deletes that wait for an undo that can't come any more. */
  finishDeletes(): void {
    for (const [id, timer] of this.#deleting) {
      this.options.cancelLater(timer);
      void this.options.api.deleteSession(id).catch(() => undefined);
    }
    this.#deleting.clear();
  }

  toast(text: string, action: { label: string; run(): void } | null = null): void {
    const { toasts } = this.options.state;
    const id = this.#nextToast++;
    // One more than can be seen at once is enough to read.
    toasts.value = [...toasts.peek().slice(-2), { id, text, action }];
    this.options.later(() => this.dismiss(id), UNDO_MS);
  }

  dismiss(id: number): void {
    const { toasts } = this.options.state;
    toasts.value = toasts.peek().filter((toast) => toast.id !== id);
  }

  /** A turn ended: the list's order, and the engine's health when it failed. */
  turnEnded(turn: Turn): void {
    this.#touch(turn.session);
    if (turn.error) this.options.health.check();
  }

  setDraft(text: string): void {
    this.options.state.draft.value = text;
    this.options.drafts.set(this.options.state.current.peek(), text);
  }

  async #open(text: string): Promise<void> {
    const { state, api, streams, drafts, navigate } = this.options;
    state.opening.value = { text, trouble: null };
    try {
      const session = await api.createSession(titleOf(text));
      state.putSession(session);
      state.load(session.id).value = "ready";
      streams.request(this.#outgoing(session.id, null, text));
      state.opening.value = null;
      if (state.current.peek() !== null) return;
      // What was typed meanwhile belongs to the chat that it was typed in.
      drafts.set(session.id, state.draft.peek());
      drafts.set(null, "");
      navigate(session.id);
    } catch (error) {
      state.opening.value = { text, trouble: this.#trouble(error) };
    }
  }

  async #finishDelete(session: Session): Promise<void> {
    if (!this.#deleting.has(session.id)) return;
    try {
      await this.options.api.deleteSession(session.id);
    } catch (error) {
      const gone = error instanceof ApiError && error.status === 404;
      if (!gone) {
        this.options.state.putSession(session);
        this.toast(`The chat could not be deleted. ${this.#trouble(error).title}`);
      }
    }
    this.#deleting.delete(session.id);
  }

  #outgoing(session: string, parent: string | null, text: string): Outgoing {
    const id = this.options.newId();
    return { id, session, parent, text, regenerates: null, stop: false, trouble: null };
  }

  /** The turn that a new message follows: the last on screen, but never an empty failure. */
  #parentForNext(session: string): string | null {
    const { state } = this.options;
    const head = state.session(session)?.head ?? null;
    const path = pathOf(state.structure(session), head, state.choices(session).peek());
    const last = path.at(-1)?.turn;
    if (!last) return null;
    return last.status === "failed" && !last.text ? last.parent : last.id;
  }

  #touch(session: string): void {
    const { state } = this.options;
    const known = state.session(session);
    // The server's clock is not ours; the most recent known second puts it on top all the same.
    const newest = Math.max(...state.sessions.peek().map((one) => one.updated_at));
    if (known) state.putSession({ ...known, updated_at: newest });
  }

  #trouble(error: unknown): Trouble {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 0 || error.status >= 500) this.options.health.check();
    return trouble(error.code, error.message);
  }
}
