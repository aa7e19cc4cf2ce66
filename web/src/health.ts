/** Asks /readyz while the server is not ready, and stays quiet once it is. */
import type { Api } from "./api";
import type { Health, State } from "./state";

const EVERY_MS = 1_500;

export class HealthWatch {
  #running = false;

  constructor(
    private readonly api: Pick<Api, "readiness">,
    private readonly state: State,
    private readonly later: (run: () => void, ms: number) => void,
  ) {}

  /** Asks now, and again until the answer is "ready". */
  check(): void {
    if (this.#running) return;
    this.#running = true;
    void this.#ask();
  }

  async #ask(): Promise<void> {
    const answer = await this.api.readiness();
    this.state.health.value = answer.ready ? "ready" : healthOf(answer.state);
    this.state.healthDetail.value = answer.detail;
    if (answer.ready) {
      this.#running = false;
      return;
    }
    this.later(() => void this.#ask(), EVERY_MS);
  }
}

/** The server's states in the page's words; one that it doesn't know is still a kind of loading. */
function healthOf(state: string | null): Health {
  if (state === null) return "unreachable";
  if (state === "draining" || state === "restarting" || state === "failed") return state;
  return "loading";
}

/** Whether a message would be refused now and taken later. */
export function isComing(health: Health): boolean {
  return health === "loading" || health === "restarting" || health === "draining";
}
