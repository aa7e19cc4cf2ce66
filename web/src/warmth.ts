/**
 * Brings a chat's state onto the device when somebody begins to type in it, so that the reply need
 * not wait for that. An offer: what goes wrong here, nobody has to hear of.
 */
import type { Api } from "./api";
import type { State } from "./state";

/** A chat is not asked for again sooner. */
export const WARM_EVERY_MS = 60_000;
/** The server keeps what it moved by then. */
const LOOK_AGAIN_MS = 1_000;

export interface WarmthOptions {
  state: State;
  api: Api;
  /** In milliseconds. */
  now(): number;
  later(run: () => void, ms: number): unknown;
}

export class Warmth {
  readonly #askedAt = new Map<string, number>();

  constructor(private readonly options: WarmthOptions) {}

  /** Somebody types in a chat. */
  typed(session: string): void {
    const { state, now } = this.options;
    const before = this.#askedAt.get(session);
    const isSoon = before !== undefined && now() - before < WARM_EVERY_MS;
    const hasTurn = (state.session(session)?.head ?? null) !== null;
    const isLive = [...state.live.peek().values()].includes(session);
    if (isSoon || !hasTurn || isLive) return;
    this.#askedAt.set(session, now());
    void this.#warm(session);
  }

  async #warm(session: string): Promise<void> {
    const { state, api, later } = this.options;
    try {
      await api.warm(session);
    } catch {
      return;
    }
    later(() => {
      api
        .getSession(session)
        .then((fresh) => {
          if (!state.gone.has(session)) state.putSession(fresh);
        })
        .catch(() => undefined);
    }, LOOK_AGAIN_MS);
  }
}
