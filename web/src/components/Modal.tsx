/** A dialog over the page. The browser keeps the focus in it and brings it back afterwards. */
import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { IconButton } from "./IconButton";

interface Props {
  title: string;
  onClose(): void;
  children: ComponentChildren;
}

export function Modal({ title, onClose, children }: Props) {
  const box = useRef<HTMLDialogElement>(null);
  const id = useId();
  // Before the next key, which is meant for the dialog already.
  useLayoutEffect(() => {
    const before = document.activeElement;
    const dialog = box.current;
    dialog?.showModal();
    dialog?.querySelector<HTMLElement>("[data-first]")?.focus();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: by keyboard Escape closes it
    <dialog
      class="modal"
      ref={box}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => {
        // Only what is beside its content is the dialog itself.
        if (event.target === event.currentTarget) onClose();
      }}
    >
      <div class="modal-content">
        <header class="modal-head">
          <h2 id={id}>{title}</h2>
          <IconButton icon="close" label="Close" onClick={onClose} />
        </header>
        {children}
      </div>
    </dialog>
  );
}
