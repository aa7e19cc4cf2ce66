/** Above the message box: why a message would have to wait just now, or would take longer. */
import { useEffect, useState } from "preact/hooks";
import { useApp } from "../app";
import { modelNote } from "../format";
import type { Health } from "../state";

/** A connection that comes back sooner is not worth a word. */
const PATIENCE_MS = 1_200;

const HEALTH_WORDS: Partial<Record<Health, string>> = {
  loading: "The model is loading. Messages are sent as soon as it is ready.",
  restarting:
    "The engine is restarting. Replies go on and messages are sent as soon as it is ready.",
  draining: "The server is shutting down. Messages wait until it is back.",
  failed: "The model could not be loaded.",
};

export function Banner() {
  const { state, socket } = useApp();
  const away = useLasting(state.link.value !== "open", PATIENCE_MS);
  const health = state.health.value;
  const words = HEALTH_WORDS[health];
  const lasting = useLasting(words !== undefined, PATIENCE_MS / 4);
  if (lasting && words !== undefined) {
    return <Line text={words} detail={state.healthDetail.value} quiet={health === "failed"} />;
  }
  if (!state.online.value) {
    return <Line text="You are offline. Messages are sent as soon as there is a network." quiet />;
  }
  const session = state.session(state.current.value ?? "");
  const note = session === undefined || session.head === null ? null : modelNote(session);
  if (!away) return note === null ? null : <Line text={note} quiet />;
  return (
    <Line text="Connection lost. Trying to reach the server again…">
      <button type="button" class="button" onClick={() => socket.nudge()}>
        Try now
      </button>
    </Line>
  );
}

interface LineProps {
  text: string;
  detail?: string | null;
  /** Nothing more is to be expected: no sign of life. */
  quiet?: boolean;
  children?: preact.ComponentChildren;
}

function Line({ text, detail = null, quiet = false, children }: LineProps) {
  return (
    <div class="banner" role="status">
      <span class={quiet ? "dot" : "dot live"} aria-hidden="true" />
      <span>
        {text}
        {detail !== null && <span class="banner-detail">{detail}</span>}
      </span>
      {children}
    </div>
  );
}

/** True once the condition has held for a while. */
function useLasting(condition: boolean, ms: number): boolean {
  const [lasting, setLasting] = useState(false);
  useEffect(() => {
    if (!condition) {
      setLasting(false);
      return;
    }
    const timer = setTimeout(() => setLasting(true), ms);
    return () => clearTimeout(timer);
  }, [condition, ms]);
  return condition && lasting;
}
