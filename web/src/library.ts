/**
 * What the reader can do with chats as a whole: list, look for, rename, pin, set, delete, take in
 * and out. No DOM. A change shows at once; where the server refuses it, it is taken back and said.
 */
import { type Api, ApiError, type ExportFormat } from "./api";
import { type Trouble, trouble } from "./errors";
import { titleOf } from "./format";
import type { HealthWatch } from "./health";
import type { Sampling, Session, SessionPage, SessionPatch } from "./protocol";
import type { State, ToastAction } from "./state";

export interface LibraryOptions {
  state: State;
  api: Api;
  health: HealthWatch;
  navigate(session: string | null, turn?: string | null): void;
  toast(text: string, action?: ToastAction | null): void;
  /** Hands a file to the reader. */
  save(file: Blob, name: string): void;
  /** The list changed here: other windows of this reader look again. */
  onChanged(session: string): void;
  later(run: () => void, ms: number): unknown;
}

/** By then the server has found a title, or has had no time to. */
const NAMED_MS = 45_000;

/** What can be set for a session's coming turns. */
export interface Settings {
  readonly instructions: string | null;
  readonly sampling: Sampling;
  readonly reasoning: "keep" | "drop" | "template";
}

export const NO_SETTINGS: Settings = { instructions: null, sampling: {}, reasoning: "template" };

export function settingsOf(session: Session): Settings {
  const { instructions, sampling, reasoning } = session;
  return { instructions, sampling, reasoning: reasoning as Settings["reasoning"] };
}

export class Library {
  /** Counts the questions: an answer to an earlier one is too late. */
  #asked = 0;
  /** The last chat of the list as far as it was read. */
  #end: string | null = null;
  /** That is further than its beginning. */
  #isFurther = false;
  /** Chats that will be looked at for want of a name. */
  readonly #unnamed = new Set<string>();

  constructor(private readonly options: LibraryOptions) {}

  /** Reads the beginning of the list; more of it that was read before stays. */
  async load(): Promise<void> {
    const { state, api } = this.options;
    const before = state.sessions.peek();
    try {
      const page = await api.listSessions();
      state.putList(page.data, !page.has_more, before);
      // Another reader's list, or one that has become shorter, begins anew.
      if (state.sessionsLoad.peek() !== "ready" || !page.has_more) this.#isFurther = false;
      if (!this.#isFurther) this.#goOnBehind(page);
      state.sessionsLoad.value = "ready";
    } catch (error) {
      if (state.sessionsLoad.peek() !== "ready") state.sessionsLoad.value = this.#trouble(error);
    }
  }

  async loadMore(): Promise<void> {
    const { state, api } = this.options;
    const last = state.session(this.#end ?? "") ?? state.sessions.peek().at(-1);
    if (!last) return;
    try {
      const page = await api.listSessions(last.id);
      const known = new Set(state.sessions.peek().map((session) => session.id));
      const fresh = page.data.filter((one) => !known.has(one.id) && !state.gone.has(one.id));
      state.sessions.value = [...state.sessions.peek(), ...fresh];
      this.#isFurther = true;
      this.#goOnBehind(page);
    } catch (error) {
      this.options.toast(this.#trouble(error).title);
    }
  }

  /** Looks for words in everything that was said; no words: the list is back. */
  async search(words: string): Promise<void> {
    const { state, api } = this.options;
    const asked = ++this.#asked;
    if (!words.trim()) {
      state.search.value = null;
      return;
    }
    const before = state.search.peek()?.hits ?? [];
    state.search.value = { words, load: "loading", hits: before, hasMore: false };
    try {
      const page = await api.search(words);
      if (asked !== this.#asked) return;
      state.search.value = { words, load: "ready", hits: page.data, hasMore: page.has_more };
    } catch (error) {
      if (asked !== this.#asked) return;
      state.search.value = { words, load: this.#trouble(error), hits: [], hasMore: false };
    }
  }

  async searchMore(): Promise<void> {
    const { state, api } = this.options;
    const found = state.search.peek();
    const last = found?.hits.at(-1);
    if (!found || !last) return;
    try {
      const page = await api.search(found.words, last.id);
      if (state.search.peek() !== found) return;
      const hits = [...found.hits, ...page.data];
      state.search.value = { ...found, hits, hasMore: page.has_more };
    } catch (error) {
      this.options.toast(this.#trouble(error).title);
    }
  }

  async rename(session: Session, title: string): Promise<void> {
    const name = title.trim();
    if (!name || name === session.title) return;
    await this.#change(session, { title: name }, "The chat could not be renamed.");
  }

  /** A chat that the server has not named after a while gets its first words as its name. */
  nameLater(session: string): void {
    const known = this.options.state.session(session);
    if (!known || known.title !== null || !known.auto_title || this.#unnamed.has(session)) return;
    this.#unnamed.add(session);
    this.options.later(() => void this.#name(session), NAMED_MS);
  }

  async pin(session: Session, pinned: boolean): Promise<void> {
    await this.#change(session, { pinned }, "The chat could not be pinned.");
  }

  /**
   * Sets what coming turns are made with. `before` is what the reader saw: null when it was saved,
   * else what is wrong; `revision_conflict` when another window has set something else meanwhile.
   */
  async set(session: string, before: Settings | null, after: Settings): Promise<Trouble | null> {
    const { state, api } = this.options;
    try {
      const now = await api.getSession(session);
      if (before !== null && JSON.stringify(settingsOf(now)) !== JSON.stringify(before)) {
        state.putSession(now);
        return trouble("revision_conflict", "");
      }
      state.putSession(await api.changeSession(session, after));
      this.options.onChanged(session);
      return null;
    } catch (error) {
      return this.#trouble(error);
    }
  }

  /** Deletes at once; the server keeps it for as long as that can be taken back. */
  async delete(session: Session, byKeys = false): Promise<void> {
    const { state, api, navigate, toast } = this.options;
    const wasShown = state.current.peek() === session.id;
    state.gone.add(session.id);
    state.dropSession(session.id);
    if (wasShown) navigate(null);
    try {
      await api.deleteSession(session.id);
      this.options.onChanged(session.id);
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 404)) {
        this.#reappear(session);
        toast(`The chat could not be deleted. ${this.#trouble(error).title}`);
        return;
      }
    }
    const run = () => void this.#restore(session, wasShown);
    toast("Chat deleted", { label: "Undo", undoes: true, takesFocus: byKeys, run });
  }

  async export(session: Session, format: ExportFormat): Promise<void> {
    const { api, save, toast } = this.options;
    try {
      const file = await api.exportSession(session.id, format);
      const name = session.title ?? this.options.state.structure(session.id)[0]?.input ?? "";
      save(file, `${fileName(name) || session.id}.${format === "json" ? "json" : "md"}`);
    } catch (error) {
      toast(`The chat could not be exported. ${this.#trouble(error).title}`);
    }
  }

  async import(text: string): Promise<void> {
    const { state, api, navigate, toast } = this.options;
    try {
      const session = await api.importSession(readFile(text));
      state.putSession(session);
      this.options.onChanged(session.id);
      navigate(session.id);
    } catch (error) {
      const what = error instanceof NotAChat ? null : this.#trouble(error);
      const why =
        what === null ? "It is not a chat exported as JSON." : (what.detail ?? what.title);
      toast(`The file could not be imported. ${why}`);
    }
  }

  #goOnBehind(page: SessionPage): void {
    this.#end = page.data.at(-1)?.id ?? this.#end;
    this.options.state.hasMoreSessions.value = page.has_more;
  }

  async #name(id: string): Promise<void> {
    const { state, api } = this.options;
    this.#unnamed.delete(id);
    const title = titleOf(state.structure(id)[0]?.input ?? "");
    if (!title || state.gone.has(id)) return;
    try {
      const now = await api.getSession(id);
      state.putSession(now);
      if (now.title !== null || !now.auto_title) return;
      const change = { title, expected_revision: now.revision };
      state.putSession(await api.changeSession(id, change));
      this.options.onChanged(id);
    } catch (error) {
      // It keeps its first words on screen, and is tried again when it is next opened.
      this.#trouble(error);
    }
  }

  async #change(session: Session, change: SessionPatch, failed: string): Promise<void> {
    const { state, api, toast } = this.options;
    state.putSession({ ...session, ...(change as Partial<Session>) });
    try {
      state.putSession(await api.changeSession(session.id, change));
      this.options.onChanged(session.id);
    } catch (error) {
      state.putSession(session);
      const run = () => void this.#change(session, change, failed);
      toast(`${failed} ${this.#trouble(error).title}`, { label: "Retry", run });
    }
  }

  async #restore(session: Session, show: boolean): Promise<void> {
    const { api, navigate, toast } = this.options;
    try {
      this.#reappear(await api.restoreSession(session.id));
      this.options.onChanged(session.id);
      if (show) navigate(session.id);
    } catch (error) {
      const gone = error instanceof ApiError && error.status === 404;
      const run = () => void this.#restore(session, show);
      if (gone) toast("It is too late: the chat is gone.");
      else toast(this.#trouble(error).title, { label: "Retry", run });
    }
  }

  #reappear(session: Session): void {
    this.options.state.gone.delete(session.id);
    this.options.state.putSession(session);
  }

  #trouble(error: unknown): Trouble {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 0 || error.status >= 500) this.options.health.check();
    return trouble(error.code, error.message);
  }
}

class NotAChat extends Error {}

function readFile(text: string): unknown {
  let file: unknown;
  try {
    file = JSON.parse(text);
  } catch {
    throw new NotAChat();
  }
  const kind = typeof file === "object" && file !== null && "object" in file ? file.object : null;
  if (kind !== "splice.export") throw new NotAChat();
  return file;
}

function fileName(title: string): string {
  return titleOf(title)
    .replace(/[^\p{L}\p{N}]+/gu, "-")
    .replace(/^-+|-+$/g, "");
}
