/** Asks /readyz while the server is not ready, and stays quiet once it is. */
import type { Api } from "./api";
import type { State } from "./state";

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
    this.state.healthDetail.value = answer.state;
    if (answer.ready) {
      this.state.health.value = "ready";
      this.#running = false;
      return;
    }
    this.state.health.value = answer.state === null ? "unreachable" : "loading";
    this.later(() => void this.#ask(), EVERY_MS);
  }
}
