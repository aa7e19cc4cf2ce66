/** Whichever dialog is open. */
import { useState } from "preact/hooks";
import { useApp } from "../app";
import { nameOf } from "../format";
import { settingsOf } from "../library";
import type { Session } from "../protocol";
import { Keys } from "./Keys";
import { Modal } from "./Modal";
import { SettingsForm } from "./SettingsForm";

export function Dialogs() {
  const { state } = useApp();
  const dialog = state.dialog.value;
  const close = () => {
    state.dialog.value = null;
  };
  if (dialog === null) return null;
  if (dialog.kind === "keys") {
    return (
      <Modal title="Keyboard shortcuts" onClose={close}>
        <Keys />
      </Modal>
    );
  }
  const session = dialog.session === null ? undefined : state.session(dialog.session);
  if (dialog.kind === "settings" && dialog.session === null) return <NewSettings close={close} />;
  if (!session) return null;
  return dialog.kind === "rename" ? (
    <Rename session={session} close={close} />
  ) : (
    <ChatSettings session={session} close={close} />
  );
}

function Rename({ session, close }: { session: Session; close(): void }) {
  const { state, library } = useApp();
  const before = nameOf(session, state.structure(session.id)[0]?.input);
  const [title, setTitle] = useState(before);
  return (
    <Modal title="Rename the chat" onClose={close}>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          if (!title.trim()) return;
          close();
          void library.rename(session, title);
        }}
      >
        <label for="title">Name</label>
        <input
          id="title"
          type="text"
          data-first
          maxLength={512}
          autocomplete="off"
          value={title}
          onFocus={(event) => event.currentTarget.select()}
          onInput={(event) => setTitle(event.currentTarget.value)}
        />
        <div class="form-actions">
          <button type="button" class="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class="button primary" disabled={!title.trim()}>
            Rename
          </button>
        </div>
      </form>
    </Modal>
  );
}

function ChatSettings({ session, close }: { session: Session; close(): void }) {
  const { library } = useApp();
  // As the reader first saw them: what is saved must not undo what another window saved since.
  const [before] = useState(() => settingsOf(session));
  return (
    <Modal title="Settings of this chat" onClose={close}>
      <SettingsForm
        before={before}
        onSave={async (after, force) => {
          const what = await library.set(session.id, force ? null : before, after);
          if (what === null) close();
          return what;
        }}
        onCancel={close}
      />
    </Modal>
  );
}

function NewSettings({ close }: { close(): void }) {
  const { state } = useApp();
  return (
    <Modal title="Settings of the new chat" onClose={close}>
      <SettingsForm
        before={state.newSettings.value}
        onSave={async (after) => {
          state.newSettings.value = after;
          close();
          return null;
        }}
        onCancel={close}
      />
    </Modal>
  );
}
