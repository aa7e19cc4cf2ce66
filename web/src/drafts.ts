/**
 * What was typed and not sent, per chat, across reloads. The new chat's draft has the key "new".
 * Storage may be full or forbidden: drafts then last as long as the page.
 */

export interface KeptStrings {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
  key(index: number): string | null;
  readonly length: number;
}

const PREFIX = "splice.draft.";

export class Drafts {
  readonly #known = new Map<string, string>();

  constructor(private readonly storage: KeptStrings | null) {}

  get(session: string | null): string {
    const key = session ?? "new";
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    try {
      return this.storage?.getItem(PREFIX + key) ?? "";
    } catch {
      return "";
    }
  }

  /** Another reader may be coming. */
  forget(): void {
    this.#known.clear();
    const storage = this.storage;
    if (!storage) return;
    try {
      const names = Array.from({ length: storage.length }, (_, index) => storage.key(index));
      for (const name of names) if (name?.startsWith(PREFIX)) storage.removeItem(name);
    } catch {
      // What can't be read was not kept.
    }
  }

  set(session: string | null, text: string): void {
    const key = session ?? "new";
    this.#known.set(key, text);
    try {
      if (text) this.storage?.setItem(PREFIX + key, text);
      else this.storage?.removeItem(PREFIX + key);
    } catch {
      // Kept in memory only.
    }
  }
}
