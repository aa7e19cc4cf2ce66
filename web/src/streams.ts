/**
 * The turns' side of the socket: sends what the reader asks for, folds what comes back, and makes
 * every new connection go on where the last one broke off.
 *
 * Frames are queued and folded once a frame of the screen, in order. After a lost connection each
 * active turn is resumed behind the last number it has seen, and what was never confirmed is said
 * again under the same `client_turn_id`, which makes it one turn however often it is said.
 */
import { batch } from "@preact/signals";
import { overflow, type Trouble, trouble } from "./errors";
import {
  type ClientFrame,
  type ErrorFrame,
  isSessionFrame,
  isTurnEvent,
  type ServerFrame,
  type SessionFrame,
  type TurnEvent,
} from "./protocol";
import type { Outgoing, State } from "./state";
import { parentKey } from "./tree";
import { fold, follows, isActive, type Turn, turnFromResponse } from "./turn";

export interface StreamsOptions {
  state: State;
  send(frame: ClientFrame): boolean;
  /** The engine is known to be loading: requests wait for `release` instead of being refused. */
  holds(): boolean;
  /** Runs the flush soon, once: an animation frame in a visible page. */
  schedule(flush: () => void): void;
  /** A turn that was asked for here has begun. */
  onBegun(turn: Turn): void;
  onEnded(turn: Turn): void;
  /** Something happened to the session that is watched. */
  onSession(frame: SessionFrame): void;
  /** An error that no request of ours asked for. */
  onTrouble(trouble: Trouble): void;
  /** Tries a failed resume again after a while. */
  later(run: () => void): void;
}

const RESUME = "resume:";
const CANCEL = "cancel:";
const WATCH = "watch:";

export class Streams {
  #queue: ServerFrame[] = [];
  /** Requests that left on the present connection and are not answered yet. */
  #sent = new Set<string>();
  /** Turns with a gap whose resume is on its way: their later events wait for it. */
  #resuming = new Set<string>();

  /** The session on screen: others are heard of when they are looked at. */
  #watched: string | null = null;

  constructor(private readonly options: StreamsOptions) {}

  request(outgoing: Outgoing): void {
    this.options.state.putOutgoing(outgoing);
    this.#dispatch(outgoing);
  }

  cancel(turn: string): void {
    this.options.state.setStopping(turn, true);
    this.options.send({ type: "response.cancel", response_id: turn, event_id: CANCEL + turn });
  }

  resume(turn: Turn): void {
    this.options.send({
      type: "response.resume",
      response_id: turn.id,
      starting_after: turn.seen,
      event_id: RESUME + turn.id,
    });
  }

  onOpen(): void {
    this.flush();
    if (this.#watched !== null) this.#send("session.subscribe", this.#watched);
    this.#sent.clear();
    this.#resuming.clear();
    const { state } = this.options;
    for (const id of state.live.peek().keys()) {
      const turn = state.turn(id)?.peek();
      if (!turn) continue;
      this.resume(turn);
      if (state.stopping.peek().has(id)) this.cancel(id);
    }
    for (const outgoing of state.outgoing.peek()) {
      if (!outgoing.trouble) this.#dispatch(outgoing);
    }
  }

  /**
   * The server has this turn: the request that it answers, if one waits, is done with. True: it
   * left on the present connection, so that the turn's events come by themselves.
   */
  confirm(turn: Turn): boolean {
    const { state } = this.options;
    const outgoing = this.#answeredBy(turn);
    if (!outgoing) return false;
    const comes = this.#sent.has(outgoing.id);
    this.#sent.delete(outgoing.id);
    state.choose(turn.session, parentKey(turn.parent), turn.id);
    state.dropOutgoing(outgoing.id);
    if (outgoing.stop && isActive(turn)) this.cancel(turn.id);
    this.options.onBegun(turn);
    return comes;
  }

  /** Hears of everything that happens to one session, whoever does it, and of no other. */
  watch(session: string | null): void {
    const before = this.#watched;
    this.#watched = session;
    if (before === session) return;
    if (before !== null) this.#send("session.unsubscribe", before);
    if (session !== null) this.#send("session.subscribe", session);
  }

  /** The engine is ready: what was held goes out. */
  release(): void {
    for (const outgoing of this.options.state.outgoing.peek()) {
      if (!outgoing.trouble && !this.#sent.has(outgoing.id)) this.#dispatch(outgoing);
    }
  }

  /** The connection was closed over the size of a frame: sending it again would close the next. */
  onTooLarge(): void {
    for (const id of this.#sent) this.#fail(id, trouble("request_too_large", ""));
    this.#sent.clear();
  }

  onFrame(frame: ServerFrame): void {
    if (this.#queue.length === 0) this.options.schedule(() => this.flush());
    this.#queue.push(frame);
  }

  flush(): void {
    const frames = this.#queue;
    this.#queue = [];
    batch(() => {
      for (const frame of frames) {
        if (isTurnEvent(frame)) this.#event(frame);
        else if (isSessionFrame(frame)) this.options.onSession(frame);
        else if (frame.type === "error") this.#error(frame as ErrorFrame);
      }
    });
  }

  #send(type: "session.subscribe" | "session.unsubscribe", conversation: string): void {
    this.options.send({ type, conversation, event_id: WATCH + conversation });
  }

  #dispatch(outgoing: Outgoing): void {
    if (this.options.holds()) return;
    const frame = frameOf(outgoing);
    if (this.options.send(frame)) this.#sent.add(outgoing.id);
  }

  #event(event: TurnEvent): void {
    const { state } = this.options;
    if (event.type === "response.created") this.#begin(event);
    const turn = state.turn(event.response_id)?.peek();
    if (!turn || !isActive(turn)) return;
    switch (follows(turn.seen, event)) {
      case "duplicate":
        return;
      case "gap":
        if (this.#resuming.has(turn.id)) return;
        this.#resuming.add(turn.id);
        this.resume(turn);
        return;
      case "next":
        this.#resuming.delete(turn.id);
        this.#put(fold(turn, event));
    }
  }

  #put(turn: Turn): void {
    this.options.state.putTurn(turn);
    if (!isActive(turn)) this.options.onEnded(turn);
  }

  /** A turn's first event. A snapshot may have told of the turn already. */
  #begin(event: TurnEvent): void {
    if (!event.response) return;
    const told = turnFromResponse(event.response, event.conversation);
    if (!this.options.state.turn(told.id)) this.options.state.putTurn(told);
    this.confirm(told);
  }

  #answeredBy(turn: Turn): Outgoing | undefined {
    return turn.clientTurnId === null ? undefined : this.#outgoing(turn.clientTurnId);
  }

  #error(frame: ErrorFrame): void {
    const what = trouble(frame.error.code, frame.error.message);
    const id = frame.event_id;
    if (id?.startsWith(RESUME)) this.#resumeFailed(id.slice(RESUME.length), what);
    else if (id?.startsWith(CANCEL)) this.options.state.setStopping(id.slice(CANCEL.length), false);
    else if (id?.startsWith(WATCH)) return;
    else if (id === null || !this.#fail(id, what)) this.options.onTrouble(what);
  }

  #resumeFailed(id: string, what: Trouble): void {
    this.#resuming.delete(id);
    const turn = this.options.state.turn(id)?.peek();
    if (!turn || !isActive(turn)) return;
    if (what.retryable) {
      this.options.later(() => {
        const now = this.options.state.turn(id)?.peek();
        if (now && isActive(now)) this.resume(now);
      });
      return;
    }
    const error = { code: what.code, message: what.detail ?? what.title };
    this.#put({ ...turn, status: "failed", error });
  }

  #fail(id: string, what: Trouble): boolean {
    const outgoing = this.#outgoing(id);
    this.#sent.delete(id);
    if (!outgoing) return false;
    const isFull = what.code === "context_length_exceeded" && outgoing.continues === null;
    const told = isFull ? this.#overflow(outgoing, what) : what;
    this.options.state.putOutgoing({ ...outgoing, trouble: told });
    return true;
  }

  /** The conversation is full, or the message alone would fill it. */
  #overflow({ session, parent }: Outgoing, full: Trouble): Trouble {
    const { state } = this.options;
    const metrics = parent ? state.turn(parent)?.peek().metrics : null;
    const before = metrics ? metrics.input_tokens + metrics.output_tokens : null;
    const instructed = Boolean(state.session(session)?.instructions?.trim());
    return overflow(full, parent === null ? 0 : before, instructed);
  }

  #outgoing(id: string): Outgoing | undefined {
    return this.options.state.outgoing.peek().find((outgoing) => outgoing.id === id);
  }
}

function frameOf(outgoing: Outgoing): ClientFrame {
  const ids = { client_turn_id: outgoing.id, event_id: outgoing.id };
  if (outgoing.regenerates !== null)
    return { type: "response.regenerate", response_id: outgoing.regenerates, ...ids };
  if (outgoing.continues !== null)
    return { type: "response.continue", response_id: outgoing.continues, ...ids };
  const { session, text, parent } = outgoing;
  const place = parent === undefined ? {} : { parent };
  return { type: "response.create", conversation: session, input: text, ...place, ...ids };
}
