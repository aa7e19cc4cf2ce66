/** What the reader wrote; it can be edited, which makes a sibling of the turn. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { useApp } from "../app";
import { CopyButton } from "./CopyButton";
import { IconButton } from "./IconButton";

interface Props {
  text: string;
  /** The turn it belongs to; null while there is none. */
  turn: string | null;
  onEdit: ((text: string) => void) | null;
}

export function Said({ text, turn, onEdit }: Props) {
  const { state } = useApp();
  if (turn !== null && state.editing.value === turn && onEdit) {
    const leave = () => {
      state.editing.value = null;
      document.getElementById("message")?.focus();
    };
    const save = (edited: string) => {
      leave();
      onEdit(edited);
    };
    return <Editor text={text} onSave={save} onCancel={leave} />;
  }
  return (
    <div class="said">
      <span class="hidden">You said:</span>
      <div class="bubble">{text}</div>
      <div class="tools">
        <CopyButton text={() => text} label="Copy message" />
        {onEdit && (
          <IconButton
            icon="edit"
            label="Edit message"
            onClick={() => {
              state.editing.value = turn;
            }}
          />
        )}
      </div>
    </div>
  );
}

interface EditorProps {
  text: string;
  onSave(text: string): void;
  onCancel(): void;
}

function Editor({ text, onSave, onCancel }: EditorProps) {
  const [edited, setEdited] = useState(text);
  const box = useRef<HTMLTextAreaElement>(null);
  // Before the next key, which is meant for it already.
  useLayoutEffect(() => {
    box.current?.focus();
    box.current?.setSelectionRange(text.length, text.length);
  }, [text]);
  const save = () => {
    if (edited.trim()) onSave(edited.trim());
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      onCancel();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      save();
    }
  };
  return (
    <div class="editor">
      <textarea
        ref={box}
        aria-label="Edit message"
        rows={Math.min(10, edited.split("\n").length + 1)}
        value={edited}
        onInput={(event) => setEdited(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      <div class="editor-actions">
        <button type="button" class="button" onClick={onCancel}>
          Cancel
        </button>
        <button type="button" class="button primary" disabled={!edited.trim()} onClick={save}>
          Send
        </button>
      </div>
    </div>
  );
}
