/**
 * One websocket that is always being kept open: reconnects with jittered backoff, and notices a
 * connection that died without saying so.
 *
 * It knows nothing of turns. `onOpen` runs on every new connection; what must be said again is the
 * caller's to know. `send` answers whether the frame left: nothing is queued here, since a frame
 * that waited may be the wrong thing to say on the next connection.
 */
import { type ClientFrame, readFrame, type ServerFrame } from "./protocol";

export type Link = "connecting" | "open" | "waiting" | "stopped";

/** The part of a browser's WebSocket that is used; tests bring their own. */
export interface RawSocket {
  readonly readyState: number;
  onopen: ((event: Event) => void) | null;
  onmessage: ((event: MessageEvent) => void) | null;
  onclose: ((event: CloseEvent) => void) | null;
  send(text: string): void;
  close(code?: number): void;
}

export interface Timers {
  set(run: () => void, ms: number): unknown;
  clear(timer: unknown): void;
}

export interface SocketListener {
  onOpen(): void;
  onFrame(frame: ServerFrame): void;
  onLink(link: Link): void;
  /** The server closed for a reason that repeating will not mend (1009: a frame was too large). */
  onTooLarge(): void;
  /** The server closed because the key is no longer good (4401). */
  onRefused(): void;
}

const OPEN = 1;
const FIRST_DELAY_MS = 400;
const MAX_DELAY_MS = 15_000;
const PING_EVERY_MS = 25_000;
const PONG_WITHIN_MS = 8_000;
const STABLE_AFTER_MS = 5_000;

export class Socket {
  #raw: RawSocket | null = null;
  #link: Link = "stopped";
  #attempts = 0;
  /** Counts the connections: what belongs to an earlier one is too late. */
  #turn = 0;
  #nonce = 0;
  #retry: unknown = null;
  #ping: unknown = null;
  #deadline: unknown = null;
  #stable: unknown = null;

  constructor(
    private readonly open: () => RawSocket | Promise<RawSocket>,
    private readonly listener: SocketListener,
    private readonly timers: Timers,
    private readonly random: () => number,
  ) {}

  get link(): Link {
    return this.#link;
  }

  start(): void {
    if (this.#link === "stopped") this.#connect();
  }

  stop(): void {
    this.#clearTimers();
    this.#drop();
    this.#setLink("stopped");
  }

  /** The world may have changed (online, tab visible again): try now, or check that it lives. */
  nudge(): void {
    if (this.#link === "waiting") {
      this.#attempts = 0;
      this.#connect();
    } else if (this.#link === "open") {
      this.#sendPing();
    }
  }

  send(frame: ClientFrame): boolean {
    if (this.#link !== "open" || this.#raw?.readyState !== OPEN) return false;
    this.#raw.send(JSON.stringify(frame));
    return true;
  }

  #connect(): void {
    this.#clearTimers();
    this.#drop();
    this.#setLink("connecting");
    // A phone's radio can leave a handshake hanging for minutes.
    this.#deadline = this.timers.set(() => this.#lost(), PONG_WITHIN_MS * 2);
    const turn = this.#turn;
    try {
      const opening = this.open();
      if (opening instanceof Promise) {
        opening.then(
          (raw) => (turn === this.#turn ? this.#attach(raw) : raw.close()),
          () => turn === this.#turn && this.#lost(),
        );
      } else this.#attach(opening);
    } catch {
      this.#lost();
    }
  }

  #attach(raw: RawSocket): void {
    this.#raw = raw;
    raw.onopen = () => this.#opened();
    raw.onmessage = (event) => this.#received(event.data);
    raw.onclose = (event) => {
      if (event.code === 1009) this.listener.onTooLarge();
      if (event.code === 4401) this.listener.onRefused();
      // A refusal stops the socket: there is nothing to come back with.
      if (this.#link === "stopped") return;
      this.#lost();
    };
  }

  #opened(): void {
    this.#clearTimers();
    this.#schedulePing();
    // A server that accepts and closes at once must not reset the backoff.
    this.#stable = this.timers.set(() => {
      this.#attempts = 0;
    }, STABLE_AFTER_MS);
    this.#setLink("open");
    this.listener.onOpen();
  }

  #received(data: unknown): void {
    if (typeof data !== "string") return;
    this.#schedulePing();
    const frame = readFrame(data);
    if (frame !== null && frame.type !== "pong") this.listener.onFrame(frame);
  }

  /** Anything received proves life, so the ping is only sent into silence. */
  #schedulePing(): void {
    this.timers.clear(this.#ping);
    this.timers.clear(this.#deadline);
    this.#deadline = null;
    this.#ping = this.timers.set(() => this.#sendPing(), PING_EVERY_MS);
  }

  #sendPing(): void {
    this.#nonce += 1;
    this.send({ type: "ping", nonce: this.#nonce });
    this.#deadline ??= this.timers.set(() => this.#lost(), PONG_WITHIN_MS);
  }

  #lost(): void {
    this.#clearTimers();
    this.#drop();
    this.#wait();
  }

  #wait(): void {
    this.#setLink("waiting");
    const ceiling = Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** this.#attempts);
    this.#attempts += 1;
    // Half fixed, half drawn: a restarted server is not met by all its pages at once.
    const delay = ceiling / 2 + (this.random() * ceiling) / 2;
    this.#retry = this.timers.set(() => this.#connect(), delay);
  }

  #drop(): void {
    this.#turn += 1;
    const raw = this.#raw;
    if (!raw) return;
    raw.onopen = raw.onmessage = raw.onclose = null;
    this.#raw = null;
    raw.close();
  }

  #clearTimers(): void {
    for (const timer of [this.#retry, this.#ping, this.#deadline, this.#stable]) {
      this.timers.clear(timer);
    }
    this.#retry = this.#ping = this.#deadline = this.#stable = null;
  }

  #setLink(link: Link): void {
    if (this.#link === link) return;
    this.#link = link;
    this.listener.onLink(link);
  }
}
