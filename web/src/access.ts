/**
 * The reader's API key, where the server asks for one. It lives as long as the page, or as long as
 * the tab when the reader says so; it never stands in an address and never in local storage.
 */
import { signal } from "@preact/signals";

export interface KeptKey {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

/** Why the page asks: the server wants a key, took this one no more, or takes it for other things. */
export type Asking = "first" | "refused" | "forbidden";

const NAME = "splice.key";

export class Access {
  readonly key = signal<string | null>(null);
  /** Not null: the page shows nothing but the question. */
  readonly asking = signal<Asking | null>(null);

  constructor(private readonly storage: KeptKey | null) {
    try {
      this.key.value = storage?.getItem(NAME) ?? null;
    } catch {
      // Without storage a key is asked for in each page.
    }
  }

  /** The server refused a call made with this key (null: without one). */
  refused(used: string | null, status: number): void {
    // The answer to an old call says nothing about the key of now.
    if (used !== this.key.peek() || this.asking.peek() !== null) return;
    this.#forget();
    if (status === 403) this.asking.value = "forbidden";
    else this.asking.value = used === null ? "first" : "refused";
  }

  /** The server has taken this key. */
  accept(key: string, keep: boolean): void {
    this.key.value = key;
    this.asking.value = null;
    if (!keep) return;
    try {
      this.storage?.setItem(NAME, key);
    } catch {
      // It lasts as long as the page.
    }
  }

  logOut(): void {
    this.#forget();
    this.asking.value = "first";
  }

  #forget(): void {
    this.key.value = null;
    try {
      this.storage?.removeItem(NAME);
    } catch {
      // Then it was never kept.
    }
  }
}

export function bearer(key: string | null): Record<string, string> {
  return key === null ? {} : { authorization: `Bearer ${key}` };
}
