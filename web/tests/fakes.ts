/** A socket, a clock and a page's worth of wiring that the tests hold in their hands. */
import type { RawSocket, Timers } from "../src/socket";

export class FakeSocket implements RawSocket {
  readyState = 0;
  onopen: ((event: Event) => void) | null = null;
  onmessage: ((event: MessageEvent) => void) | null = null;
  onclose: ((event: CloseEvent) => void) | null = null;
  readonly sent: Record<string, unknown>[] = [];
  closed = false;

  send(text: string): void {
    this.sent.push(JSON.parse(text));
  }

  close(): void {
    this.closed = true;
    this.readyState = 3;
  }

  accept(): void {
    this.readyState = 1;
    this.onopen?.(new Event("open"));
  }

  say(frame: unknown): void {
    this.onmessage?.({ data: JSON.stringify(frame) } as MessageEvent);
  }

  lose(code = 1006): void {
    this.readyState = 3;
    this.onclose?.({ code } as CloseEvent);
  }
}

export class FakeTimers implements Timers {
  #now = 0;
  #next = 1;
  #timers = new Map<number, { at: number; run: () => void }>();

  set(run: () => void, ms: number): number {
    this.#timers.set(this.#next, { at: this.#now + ms, run });
    return this.#next++;
  }

  clear(timer: unknown): void {
    this.#timers.delete(timer as number);
  }

  pass(ms: number): void {
    const end = this.#now + ms;
    for (;;) {
      const due = [...this.#timers].filter(([, timer]) => timer.at <= end);
      const first = due.sort((a, b) => a[1].at - b[1].at)[0];
      if (!first) break;
      this.#timers.delete(first[0]);
      this.#now = first[1].at;
      first[1].run();
    }
    this.#now = end;
  }
}

/** A browser's storage. */
export class FakeStorage {
  readonly all = new Map<string, string>();
  get length() {
    return this.all.size;
  }
  key(index: number) {
    return [...this.all.keys()][index] ?? null;
  }
  getItem(key: string) {
    return this.all.get(key) ?? null;
  }
  setItem(key: string, value: string) {
    this.all.set(key, value);
  }
  removeItem(key: string) {
    this.all.delete(key);
  }
}

export function last<T>(all: readonly T[]): T {
  const found = all.at(-1);
  if (found === undefined) throw new Error("there is none yet");
  return found;
}
