/** Above the message box: why a message would have to wait just now. */
import { useEffect, useState } from "preact/hooks";
import { useApp } from "../app";

/** A connection that comes back sooner is not worth a word. */
const PATIENCE_MS = 1_200;

export function Banner() {
  const { state, socket } = useApp();
  const away = useLasting(state.link.value !== "open", PATIENCE_MS);
  const loading = useLasting(state.health.value === "loading", PATIENCE_MS / 4);
  if (loading && state.healthDetail.value === "draining") {
    return <Line text="The server is shutting down. Messages wait until it is back." />;
  }
  if (loading) {
    return <Line text="The model is loading. Messages are sent as soon as it is ready." />;
  }
  if (!away) return null;
  return (
    <Line text="Connection lost. Trying to reach the server again…">
      <button type="button" class="button" onClick={() => socket.nudge()}>
        Try now
      </button>
    </Line>
  );
}

function Line({ text, children }: { text: string; children?: preact.ComponentChildren }) {
  return (
    <div class="banner" role="status">
      <span class="dot live" aria-hidden="true" />
      <span>{text}</span>
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
