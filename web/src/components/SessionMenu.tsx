/** What can be done with a chat as a whole: in the list, and above the conversation. */
import { useApp } from "../app";
import { useRemoval } from "../hooks/removal";
import type { Session } from "../protocol";
import { Menu } from "./Menu";

export function SessionMenu({ session, label }: { session: Session; label: string }) {
  const { state, library } = useApp();
  const remove = useRemoval();
  const { id, pinned } = session;
  return (
    <Menu
      label={label}
      items={[
        {
          icon: "edit",
          label: "Rename",
          run: () => {
            state.dialog.value = { kind: "rename", session: id };
          },
        },
        {
          icon: "pin",
          label: pinned ? "Unpin" : "Pin",
          run: () => void library.pin(session, !pinned),
        },
        {
          icon: "sliders",
          label: "Settings",
          run: () => {
            state.dialog.value = { kind: "settings", session: id };
          },
        },
        {
          icon: "save",
          label: "Export as Markdown",
          run: () => void library.export(session, "markdown"),
        },
        {
          icon: "save",
          label: "Export as JSON",
          run: () => void library.export(session, "json"),
        },
        {
          icon: "trash",
          label: "Delete",
          danger: true,
          run: (byKeys) => remove(session, byKeys),
        },
      ]}
    />
  );
}
