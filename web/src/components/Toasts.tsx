/** Short notes that go by themselves, some with a way back. */
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { useApp } from "../app";
import type { Toast } from "../state";
import { IconButton } from "./IconButton";

export function Toasts() {
  const { state } = useApp();
  return (
    <div class="toasts" role="status" aria-live="polite">
      {state.toasts.value.map((toast) => (
        <Note key={toast.id} toast={toast} />
      ))}
    </div>
  );
}

function Note({ toast: { id, text, action } }: { toast: Toast }) {
  const { chat } = useApp();
  const box = useRef<HTMLDivElement>(null);
  const words = useId();
  /** Where the focus was before it came here. */
  const origin = useRef<EventTarget | null>(null);
  const use = useRef({ over: false, focused: false });
  const hold = (now: { over?: boolean; focused?: boolean }) => {
    Object.assign(use.current, now);
    chat.hold(id, use.current.over || use.current.focused);
  };
  useLayoutEffect(() => {
    const note = box.current;
    if (action?.takesFocus) note?.querySelector<HTMLElement>(".toast-action")?.focus();
    return () => {
      if (note?.contains(document.activeElement)) giveBack(origin.current);
    };
  }, []);
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: whoever is at its buttons is not hurried
    <div
      class="toast"
      ref={box}
      onPointerEnter={() => hold({ over: true })}
      onPointerLeave={() => hold({ over: false })}
      onFocusIn={(event) => {
        if (!box.current?.contains(event.relatedTarget as Node | null))
          origin.current = event.relatedTarget;
        hold({ focused: true });
      }}
      onFocusOut={() => hold({ focused: false })}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        // Not the reply: only the note goes.
        event.stopPropagation();
        chat.dismiss(id);
      }}
    >
      <span id={words}>{text}</span>
      {action && (
        <button
          type="button"
          class="toast-action"
          aria-describedby={words}
          aria-keyshortcuts={action.undoes ? "Control+Z Meta+Z" : undefined}
          title={action.undoes ? `${action.label} (Ctrl Z)` : undefined}
          onClick={() => {
            chat.dismiss(id);
            action.run();
          }}
        >
          {action.label}
        </button>
      )}
      <IconButton icon="close" label="Dismiss" onClick={() => chat.dismiss(id)} />
    </div>
  );
}

function giveBack(origin: EventTarget | null): void {
  if (origin instanceof HTMLElement && origin.isConnected) origin.focus();
  // On a phone the focus would open the keyboard.
  else if (matchMedia("(hover: hover)").matches) document.getElementById("message")?.focus();
}
