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
import { type Library, NO_SETTINGS } from "./library";
import type { SessionFrame } from "./protocol";
import type { Outgoing, State, Toast, ToastAction } from "./state";
import type { Streams } from "./streams";
import { parentKey, pathOf } from "./tree";
import { isActive, type Turn, turnFromResponse } from "./turn";

export interface ChatOptions {
  state: State;
  api: Api;
  streams: Streams;
  drafts: Drafts;
  health: HealthWatch;
  library: Library;
  /** Puts the session into the address; the page then follows the address. */
  navigate(session: string | null): void;
  newId(): string;
  /** Somebody types in a session. */
  onTyping(session: string): void;
  later(run: () => void, ms: number): unknown;
}

const TOAST_MS = 6_000;
/** With a way back it stays longer. */
const UNDO_MS = 12_000;

const FRESH = { stop: false, trouble: null } as const;

export class Chat {
  #nextToast = 1;
  /** Toasts that somebody is at: they stay. */
  readonly #held = new Set<number>();

  constructor(private readonly options: ChatOptions) {}

  /**
   * Shows a session (null: the new chat) and reads its turns; active ones are resumed. With a
   * `turn`, the branch that has it, and that turn in view.
   */
  show(session: string | null, turn: string | null = null): void {
    const { state } = this.options;
    state.current.value = session;
    // Only now: the address changes a moment after it was told to, and nobody is idle meanwhile.
    if (state.opening.peek()?.isMade) state.opening.value = null;
    state.sought.value = turn;
    state.editing.value = null;
    state.draft.value = this.options.drafts.get(session);
    state.drawer.value = false;
    this.options.streams.watch(session);
    if (session === null) return;
    state.setUnread(session, false);
    void this.loadTurns(session);
  }

  async loadTurns(session: string): Promise<void> {
    const { state, api, streams, library } = this.options;
    const load = state.load(session);
    if (load.peek() !== "ready") load.value = "loading";
    try {
      const [fresh, responses] = await Promise.all([
        api.getSession(session),
        api.listTurns(session),
      ]);
      if (!state.gone.has(session)) state.putSession(fresh);
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
      this.#seek(session);
      if (responses.length > 0) library.nameLater(session);
      load.value = "ready";
    } catch (error) {
      const what = this.#trouble(error);
      if (load.peek() !== "ready") load.value = what;
    }
  }

  /**
   * Looks for what others did: cheap, for every few seconds. `again`: what could not be read is
   * tried once more, as when the page is seen again.
   */
  async refresh(again = true): Promise<void> {
    const { state } = this.options;
    const id = state.current.peek();
    const before = id === null ? undefined : state.session(id)?.revision;
    await this.options.library.load();
    if (id === null) return;
    const unread = again && state.load(id).peek() !== "ready";
    if (unread || state.session(id)?.revision !== before) await this.loadTurns(id);
  }

  /** The connection is back: what could not be read before is read now. */
  recover(): void {
    if (this.options.state.sessionsLoad.peek() !== "loading") void this.refresh();
  }

  /** The session on screen changed, by whomever. What is known of its turns is not read again. */
  happened(frame: SessionFrame): void {
    const { state } = this.options;
    const { conversation: id, change, response_id: turn, session } = frame;
    if (change === "deleted" && !state.gone.has(id)) state.dropSession(id);
    if (session === null || state.gone.has(id)) return;
    const known = state.session(id)?.revision;
    state.putSession(session);
    const isNews = turn !== null && change === "turn_started" && !state.turn(turn);
    const isBehind = change === null && known !== undefined && known !== frame.revision;
    if (isNews || isBehind || frame.resync) void this.loadTurns(id);
  }

  /** Another window changed a session; this one may have it on screen. */
  heard(session: string): void {
    const { state, library } = this.options;
    void library.load();
    if (state.current.peek() === session && !state.gone.has(session)) void this.loadTurns(session);
  }

  send(text: string): void {
    const { state, streams } = this.options;
    state.sought.value = null;
    const session = state.current.peek();
    if (session === null) {
      void this.#open(text);
      return;
    }
    for (const failed of state.outgoing.peek()) {
      if (failed.session === session && failed.trouble) state.dropOutgoing(failed.id);
    }
    state.raiseSession(session);
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

  /** Goes on with a reply that was cut: a sibling that begins with what there is. */
  continue(turn: Turn): void {
    const request = this.#outgoing(turn.session, turn.parent, turn.input);
    this.options.streams.request({ ...request, continues: turn.id });
  }

  /** Shows another version of a turn, and makes its branch the one that is gone on with. */
  choose(session: string, turn: Turn): void {
    const { state, api } = this.options;
    state.choose(session, parentKey(turn.parent), turn.id);
    const path = pathOf(state.structure(session), null, state.choices(session).peek());
    const leaf = path.at(-1)?.turn;
    const runs = [...state.live.peek().values()].includes(session);
    if (!leaf || leaf.session !== session || runs) return;
    // On screen it is chosen all the same; the next message names its parent.
    api.setHead(session, leaf.id).then(
      (fresh) => state.putSession(fresh),
      () => undefined,
    );
  }

  /** Opens the last message on screen for editing, where it is one of this session. */
  editLast(): void {
    const { state } = this.options;
    const session = state.current.peek();
    if (session === null || [...state.live.peek().values()].includes(session)) return;
    const head = state.session(session)?.head ?? null;
    const path = pathOf(state.structure(session), head, state.choices(session).peek());
    const last = path.at(-1)?.turn;
    if (last?.session === session) state.editing.value = last.id;
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

  toast(text: string, action: ToastAction | null = null): void {
    const { toasts } = this.options.state;
    const id = this.#nextToast++;
    // Said again it is said once; two ways back are two, whatever they are called.
    const isSame = (other: Toast) => other.text === text && !other.action && action === null;
    const rest = toasts.peek().filter((other) => !isSame(other));
    // One more than can be seen at once is enough to read.
    toasts.value = [...rest.slice(-2), { id, text, action }];
    this.#expire(id, action === null ? TOAST_MS : UNDO_MS);
  }

  /** While it is held it does not go by itself. */
  hold(toast: number, isHeld: boolean): void {
    if (isHeld) this.#held.add(toast);
    else this.#held.delete(toast);
  }

  /** Takes back what was done last; false: there is nothing, or no way back any more. */
  undo(): boolean {
    const last = this.options.state.toasts.peek().findLast(({ action }) => action?.undoes);
    if (!last) return false;
    this.dismiss(last.id);
    last.action?.run();
    return true;
  }

  dismiss(id: number): void {
    const { toasts } = this.options.state;
    toasts.value = toasts.peek().filter((toast) => toast.id !== id);
    this.#held.delete(id);
  }

  /** A turn ended: the list's order, and the engine's health when it failed. */
  turnEnded(turn: Turn): void {
    // From here on the chat's tokens are the loaded model's.
    if (this.options.state.session(turn.session)?.model_state !== "loaded")
      void this.#look(turn.session);
    this.options.state.raiseSession(turn.session);
    this.options.library.nameLater(turn.session);
    if (turn.error) this.options.health.check();
  }

  setDraft(text: string): void {
    const session = this.options.state.current.peek();
    this.options.state.draft.value = text;
    this.options.drafts.set(session, text);
    if (session !== null && text !== "") this.options.onTyping(session);
  }

  async #open(text: string): Promise<void> {
    const { state, api, streams, drafts, navigate } = this.options;
    const opening = { text, trouble: null, isMade: false };
    state.opening.value = opening;
    try {
      const settings = state.newSettings.peek();
      const session = await api.createSession(settings);
      state.newSettings.value = NO_SETTINGS;
      state.putSession(session);
      state.load(session.id).value = "ready";
      streams.request(this.#outgoing(session.id, null, text));
      if (state.current.peek() !== null) {
        state.opening.value = null;
        return;
      }
      state.opening.value = { ...opening, isMade: true };
      // What was typed meanwhile belongs to the chat that it was typed in.
      drafts.set(session.id, state.draft.peek());
      drafts.set(null, "");
      navigate(session.id);
    } catch (error) {
      state.opening.value = { ...opening, trouble: this.#trouble(error) };
    }
  }

  #expire(toast: number, ms: number): void {
    this.options.later(() => {
      const isThere = this.options.state.toasts.peek().some(({ id }) => id === toast);
      if (isThere && this.#held.has(toast)) this.#expire(toast, ms);
      else this.dismiss(toast);
    }, ms);
  }

  async #look(session: string): Promise<void> {
    const { state, api } = this.options;
    try {
      const fresh = await api.getSession(session);
      if (!state.gone.has(session)) state.putSession(fresh);
    } catch (error) {
      // It is only a little out of date; nothing was asked for that could fail on screen.
      this.#trouble(error);
    }
  }

  /** Chooses the branch that leads to the turn that is sought; one that is not there is dropped. */
  #seek(session: string): void {
    const { state } = this.options;
    const sought = state.sought.peek();
    if (sought === null || state.current.peek() !== session) return;
    const byId = new Map(state.structure(session).map((turn) => [turn.id, turn]));
    let turn = byId.get(sought);
    if (!turn) state.sought.value = null;
    for (let step = 0; turn && step <= byId.size; step += 1) {
      state.choose(session, parentKey(turn.parent), turn.id);
      turn = turn.parent === null ? undefined : byId.get(turn.parent);
    }
  }

  #outgoing(session: string, parent: string | null | undefined, text: string): Outgoing {
    const id = this.options.newId();
    return { id, session, parent, text, regenerates: null, continues: null, ...FRESH };
  }

  /**
   * The turn that a new message follows: the last on screen, but never an empty failure. While the
   * turns are not known yet (undefined) the server knows the last one.
   */
  #parentForNext(session: string): string | null | undefined {
    const { state } = this.options;
    if (state.load(session).peek() !== "ready") return undefined;
    const head = state.session(session)?.head ?? null;
    const path = pathOf(state.structure(session), head, state.choices(session).peek());
    const last = path.at(-1)?.turn;
    if (!last) return null;
    return last.status === "failed" && !last.text ? last.parent : last.id;
  }

  #trouble(error: unknown): Trouble {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 0 || error.status >= 500) this.options.health.check();
    return trouble(error.code, error.message);
  }
}
