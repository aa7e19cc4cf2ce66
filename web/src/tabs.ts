/**
 * Windows of one reader tell each other which session changed, so that none has to ask all the
 * time. Where the browser can't, a window looks again when it is seen again.
 */

export class Tabs {
  readonly #channel: BroadcastChannel | null;

  constructor(name: string, onHeard: (session: string) => void) {
    this.#channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel(name);
    if (!this.#channel) return;
    this.#channel.onmessage = ({ data }) => {
      if (typeof data === "string") onHeard(data);
    };
  }

  tell(session: string): void {
    this.#channel?.postMessage(session);
  }
}
