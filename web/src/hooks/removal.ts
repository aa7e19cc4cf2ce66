/** Deletes a chat and leaves the focus where one can go on: in the list, if it was there. */
import { useApp } from "../app";
import type { Session } from "../protocol";
import { hashOf } from "../route";

/** `byKeys`: the way back is to take the focus as soon as there is one. */
export function useRemoval(): (session: Session, byKeys: boolean) => void {
  const { library } = useApp();
  return (session, byKeys) => {
    const rows = [...document.querySelectorAll<HTMLElement>(".sidebar nav .row > a")];
    const at = rows.findIndex((row) => row.getAttribute("href") === hashOf(session.id));
    const isHere = rows[at]?.closest(".row")?.contains(document.activeElement);
    void library.delete(session, byKeys);
    if (!isHere) return;
    const next = rows[at + 1] ?? rows[at - 1];
    if (next) next.focus();
    // By a finger it would open the keyboard.
    else if (byKeys) document.getElementById("search")?.focus();
  };
}
