/** Tells screen readers of the reply on screen, in sentences, at most every two seconds. */
import { useEffect, useState } from "preact/hooks";
import { announce } from "../announce";
import { useApp } from "../app";
import { isActive } from "../turn";

const EVERY_MS = 2_000;

export function Announcer() {
  const { state } = useApp();
  const [lines, setLines] = useState<readonly string[]>([]);
  const session = state.current.value;
  const running = [...state.live.value].find(([, where]) => where === session)?.[0];
  useEffect(() => {
    const signal = running === undefined ? undefined : state.turn(running);
    if (!signal) return;
    let told = 0;
    const tell = () => {
      const turn = signal.peek();
      const { say, upTo } = announce(turn.text, told, !isActive(turn));
      told = upTo;
      if (say) setLines((before) => [...before.slice(-20), say]);
    };
    const timer = setInterval(tell, EVERY_MS);
    return () => {
      clearInterval(timer);
      tell();
    };
  }, [running, state]);
  return (
    <div class="hidden" role="log" aria-live="polite" aria-label="Replies">
      {lines.map((line, i) => (
        <p key={i}>{line}</p>
      ))}
    </div>
  );
}
