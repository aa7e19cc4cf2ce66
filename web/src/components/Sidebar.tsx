/** The chats, most recent first; on a phone a drawer over the conversation. */
import { useEffect, useRef } from "preact/hooks";
import { useApp } from "../app";
import { ageGroup, nameOf } from "../format";
import type { Session } from "../protocol";
import { hashOf } from "../route";
import { nextTheme, type Theme, theme } from "../theme";
import { Icon, type IconName } from "./Icon";
import { IconButton } from "./IconButton";
import { Mark } from "./Mark";

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
        <nav aria-label="Chats">
          <SessionList />
        </nav>
        <LogOutButton />
        <ThemeButton />
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

function SessionList() {
  const { state, chat } = useApp();
  const load = state.sessionsLoad.value;
  const sessions = state.sessions.value;
  if (sessions.length === 0) {
    if (load === "loading") return <p class="list-note">Loading…</p>;
    if (load === "ready") return <p class="list-note">Your chats will be listed here.</p>;
    return (
      <div class="list-note">
        <p>{load.title}</p>
        <button type="button" class="button" onClick={() => void chat.loadSessions()}>
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
        <button type="button" class="button more" onClick={() => void chat.loadMoreSessions()}>
          Show more
        </button>
      )}
    </>
  );
}

function grouped(sessions: readonly Session[]): [string, Session[]][] {
  const groups = new Map<string, Session[]>();
  for (const session of sessions) {
    const name = ageGroup(session.updated_at, Date.now());
    const group = groups.get(name);
    if (group) group.push(session);
    else groups.set(name, [session]);
  }
  return [...groups];
}

function Row({ session }: { session: Session }) {
  const { state, chat } = useApp();
  const current = state.current.value === session.id;
  const live = [...state.live.value.values()].includes(session.id);
  const unread = state.unread.value.has(session.id);
  const name = nameOf(session, state.structure(session.id)[0]?.input);
  const remove = (event: MouseEvent) => {
    const row = (event.currentTarget as Element).closest("li");
    const next = (row?.nextElementSibling ?? row?.previousElementSibling)?.querySelector("a");
    chat.delete(session);
    next?.focus();
  };
  return (
    <li class="row">
      <a href={hashOf(session.id)} aria-current={current ? "page" : undefined} title={name}>
        {session.forked_from !== null && <Icon name="fork" />}
        <span class="row-name">{name}</span>
        {live && <span class="dot live" role="img" aria-label="A reply is being written" />}
        {!live && unread && <span class="dot" role="img" aria-label="New reply" />}
      </a>
      <button
        type="button"
        class="icon-button"
        aria-label={`Delete “${name}”`}
        title="Delete"
        onClick={remove}
      >
        <Icon name="trash" />
      </button>
    </li>
  );
}

/** Only where there was something to log in with. */
function LogOutButton() {
  const { access, logOut } = useApp();
  if (access.key.value === null) return null;
  return (
    <button type="button" class="theme-button" onClick={logOut}>
      <Icon name="leave" />
      Log out
    </button>
  );
}

const THEMES: Record<Theme, { icon: IconName; name: string }> = {
  system: { icon: "system", name: "System theme" },
  light: { icon: "sun", name: "Light theme" },
  dark: { icon: "moon", name: "Dark theme" },
};

function ThemeButton() {
  const { icon, name } = THEMES[theme.value];
  return (
    <button type="button" class="theme-button" title="Change the theme" onClick={nextTheme}>
      <Icon name={icon} />
      {name}
    </button>
  );
}
