/** Keys that work wherever the focus is; `components/Keys.tsx` lists them. */
import { useEffect } from "preact/hooks";
import { useApp } from "../app";
import { isRunning } from "../components/Composer";

export function useKeys(): void {
  const app = useApp();
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => onKey(app, event);
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, [app]);
}

function onKey({ state, chat, navigate }: ReturnType<typeof useApp>, event: KeyboardEvent): void {
  // A dialog or a menu has its own keys, Escape above all.
  if (document.querySelector("dialog[open], :popover-open")) return;
  const key = event.key.toLowerCase();
  const control = event.ctrlKey || event.metaKey;
  if (key === "escape" && state.drawer.peek()) state.drawer.value = false;
  else if (key === "escape" && isRunning(state, state.current.peek())) chat.stop();
  else if (control && !event.shiftKey && key === "z" && !isTyping(event)) {
    if (!chat.undo()) return;
  } else if (control && event.shiftKey && key === "o") navigate(null);
  else if (control && key === "k") {
    state.drawer.value = true;
    later(() => document.getElementById("search")?.focus());
  } else if (control && key === ",")
    state.dialog.value = { kind: "settings", session: state.current.peek() };
  else if ((control && key === "/") || (key === "?" && !isTyping(event)))
    state.dialog.value = { kind: "keys" };
  else if (key === "/" && !isTyping(event)) document.getElementById("message")?.focus();
  else return;
  event.preventDefault();
}

/** When what the state says is on screen: a closed drawer takes no focus. */
function later(run: () => void): void {
  requestAnimationFrame(() => requestAnimationFrame(run));
}

function isTyping({ target }: KeyboardEvent): boolean {
  return (
    target instanceof HTMLElement && target.matches("input:not([type=radio]), textarea, select")
  );
}
