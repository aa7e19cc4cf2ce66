/** Short notes that go by themselves, some with a way back. */
import { useApp } from "../app";
import { IconButton } from "./IconButton";

export function Toasts() {
  const { state, chat } = useApp();
  return (
    <div class="toasts" role="status" aria-live="polite">
      {state.toasts.value.map(({ id, text, action }) => (
        <div class="toast" key={id}>
          <span>{text}</span>
          {action && (
            <button
              type="button"
              class="toast-action"
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
      ))}
    </div>
  );
}
