/** The chats, most recent first; on a phone a drawer over the conversation. */
import { useEffect, useRef } from "preact/hooks";
import { useApp } from "../app";
import { ageGroup, modelMark, nameOf } from "../format";
import { useRemoval } from "../hooks/removal";
import type { Session } from "../protocol";
import { hashOf } from "../route";
import { setTheme, type Theme, theme } from "../theme";
import { Found } from "./Found";
import { Icon, type IconName } from "./Icon";
import { IconButton } from "./IconButton";
import { Mark } from "./Mark";
import { target } from "./Menu";
import { PlaceMark } from "./Residency";
import { SessionMenu } from "./SessionMenu";

export function Sidebar() {
  const { state, navigate } = useApp();
  const open = state.drawer.value;
  const drawer = useRef<HTMLElement>(null);
  useEffect(() => {
    if (open) drawer.current?.querySelector<HTMLElement>("button, a")?.focus();
  }, [open]);
  return (
    <>
      <aside class={open ? "sidebar open" : "sidebar"} ref={drawer} aria-label="Chats">
        <div class="brand">
          <Mark />
          <span>Splice</span>
          <IconButton
            icon="close"
            label="Close the list"
            class="phone-only"
            onClick={() => {
              state.drawer.value = false;
            }}
          />
        </div>
        <button
          type="button"
          class="new-chat"
          onClick={() => {
            navigate(null);
            state.drawer.value = false;
          }}
        >
          <Icon name="plus" />
          New chat
        </button>
        <SearchBox />
        <nav aria-label="Chats" onKeyDown={onListKey}>
          {state.search.value === null ? <SessionList /> : <Found />}
        </nav>
        <footer class="sidebar-foot">
          <ThemeChoice />
          <span class="sidebar-tools">
            <ImportButton />
            <IconButton
              icon="keys"
              class="with-keys"
              label="Keyboard shortcuts"
              onClick={() => {
                state.dialog.value = { kind: "keys" };
              }}
            />
            <LogOutButton />
          </span>
        </footer>
      </aside>
      {open && (
        <button
          type="button"
          class="scrim"
          aria-label="Close the list"
          onClick={() => {
            state.drawer.value = false;
          }}
        />
      )}
    </>
  );
}

/** The search waits until the typing rests. */
const REST_MS = 200;

function SearchBox() {
  const { state, library } = useApp();
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const box = useRef<HTMLInputElement>(null);
  const look = (words: string) => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => void library.search(words), words ? REST_MS : 0);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape" && box.current?.value) {
      // Not the reply: only the words are taken back.
      event.stopPropagation();
      event.preventDefault();
      box.current.value = "";
      look("");
    } else if (event.key === "ArrowDown") {
      event.preventDefault();
      document.querySelector<HTMLElement>(".sidebar nav .row a")?.focus();
    }
  };
  return (
    <search class="search">
      <Icon name="search" />
      <input
        id="search"
        ref={box}
        type="search"
        placeholder="Search"
        aria-label="Search all chats"
        autocomplete="off"
        enterkeyhint="search"
        defaultValue={state.search.peek()?.words ?? ""}
        onInput={(event) => look(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
    </search>
  );
}

/** Arrow keys move between the chats. */
function onListKey(event: KeyboardEvent & { currentTarget: HTMLElement }): void {
  const rows = [...event.currentTarget.querySelectorAll<HTMLElement>(".row > a")];
  const at = rows.indexOf(document.activeElement as HTMLElement);
  if (at < 0) return;
  if (event.key === "ArrowUp" && at === 0) {
    event.preventDefault();
    document.getElementById("search")?.focus();
    return;
  }
  const to = target(event.key, at, rows.length);
  if (to === null) return;
  event.preventDefault();
  rows[to]?.focus();
}

function SessionList() {
  const { state, library } = useApp();
  const load = state.sessionsLoad.value;
  const sessions = state.sessions.value;
  if (sessions.length === 0) {
    if (load === "loading") return <p class="list-note">Loading…</p>;
    if (load === "ready") return <p class="list-note">Your chats will be listed here.</p>;
    return (
      <div class="list-note">
        <p>{load.title}</p>
        <button type="button" class="button" onClick={() => void library.load()}>
          Try again
        </button>
      </div>
    );
  }
  return (
    <>
      {grouped(sessions).map(([name, group]) => (
        <section key={name}>
          <h2>{name}</h2>
          <ul>
            {group.map((session) => (
              <Row key={session.id} session={session} />
            ))}
          </ul>
        </section>
      ))}
      {state.hasMoreSessions.value && (
        <button type="button" class="button more" onClick={() => void library.loadMore()}>
          Show more
        </button>
      )}
    </>
  );
}

function grouped(sessions: readonly Session[]): [string, Session[]][] {
  const groups = new Map<string, Session[]>();
  for (const session of sessions) {
    const name = session.pinned ? "Pinned" : ageGroup(session.updated_at, Date.now());
    const group = groups.get(name);
    if (group) group.push(session);
    else groups.set(name, [session]);
  }
  return [...groups];
}

function Row({ session }: { session: Session }) {
  const { state } = useApp();
  const remove = useRemoval();
  const current = state.current.value === session.id;
  const live = state.isLive(session);
  const unread = state.unread.value.has(session.id);
  const name = nameOf(session, state.structure(session.id)[0]?.input);
  const readAnew = modelMark(session);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "F2") state.dialog.value = { kind: "rename", session: session.id };
    if (event.key === "Delete") remove(session, true);
  };
  return (
    <li class="row">
      <a
        href={hashOf(session.id)}
        aria-current={current ? "page" : undefined}
        title={name}
        onKeyDown={onKeyDown}
      >
        {session.forked_from !== null && <Icon name="fork" />}
        <span class="row-name">{name}</span>
        {readAnew !== null && (
          <span class="row-mark" role="img" aria-label={readAnew} title={readAnew}>
            <Icon name="swap" />
          </span>
        )}
        {!live && !unread && <PlaceMark session={session} />}
        {live && <span class="dot live" role="img" aria-label="A reply is being written" />}
        {!live && unread && <span class="dot" role="img" aria-label="New reply" />}
      </a>
      <SessionMenu session={session} label={`More for “${name}”`} />
    </li>
  );
}

function ImportButton() {
  const { library } = useApp();
  const file = useRef<HTMLInputElement>(null);
  return (
    <>
      <input
        hidden
        ref={file}
        type="file"
        accept="application/json,.json"
        onChange={(event) => {
          const chosen = event.currentTarget.files?.[0];
          // The same file can be chosen again.
          event.currentTarget.value = "";
          void chosen?.text().then((text) => library.import(text));
        }}
      />
      <IconButton icon="open" label="Import a chat" onClick={() => file.current?.click()} />
    </>
  );
}

/** Only where there was something to log in with. */
function LogOutButton() {
  const { access, logOut } = useApp();
  if (access.key.value === null) return null;
  return <IconButton icon="leave" label="Log out" onClick={logOut} />;
}

const THEMES: readonly { name: Theme; icon: IconName; label: string }[] = [
  { name: "system", icon: "system", label: "As the system" },
  { name: "light", icon: "sun", label: "Light" },
  { name: "dark", icon: "moon", label: "Dark" },
];

function ThemeChoice() {
  return (
    <fieldset class="themes" aria-label="Theme">
      {THEMES.map(({ name, icon, label }) => (
        <label key={name} title={label}>
          <input
            class="hidden"
            type="radio"
            name="theme"
            aria-label={label}
            checked={theme.value === name}
            onChange={() => setTheme(name)}
          />
          <Icon name={icon} />
        </label>
      ))}
    </fieldset>
  );
}
