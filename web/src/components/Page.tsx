/** The whole page: the list, the conversation, the message box. */
import { useEffect, useRef } from "preact/hooks";
import { useApp } from "../app";
import { nameOf } from "../format";
import { useKeys } from "../hooks/keys";
import { Announcer } from "./Announcer";
import { Banner } from "./Banner";
import { Composer } from "./Composer";
import { Dialogs } from "./Dialogs";
import { IconButton } from "./IconButton";
import { LogIn } from "./LogIn";
import { PlaceBadge } from "./Residency";
import { SessionMenu } from "./SessionMenu";
import { Sidebar } from "./Sidebar";
import { Thread } from "./Thread";
import { Toasts } from "./Toasts";

export function Page() {
  const { access } = useApp();
  const asking = access.asking.value;
  return asking === null ? <Everything /> : <LogIn why={asking} />;
}

function Everything() {
  const { state } = useApp();
  useKeys();
  return (
    <div class="page">
      <Sidebar />
      <main class="main" inert={state.drawer.value}>
        <TopBar />
        <Thread />
        <div class="dock">
          <Banner />
          <Composer />
        </div>
      </main>
      <Toasts />
      <Dialogs />
      <Announcer />
    </div>
  );
}

function TopBar() {
  const { state, navigate } = useApp();
  const menu = useRef<HTMLDivElement>(null);
  const id = state.current.value;
  const session = id === null ? undefined : state.session(id);
  const first = id === null ? undefined : state.structure(id)[0]?.input;
  const name = session ? nameOf(session, first) : "New chat";
  const drawer = state.drawer.value;
  const wasOpen = useRef(false);
  useEffect(() => {
    document.title = session ? `${name} · Splice` : "Splice";
  }, [name, session]);
  useEffect(() => {
    if (wasOpen.current && !drawer) menu.current?.querySelector("button")?.focus();
    wasOpen.current = drawer;
  }, [drawer]);
  return (
    <header class="topbar">
      <div class="phone-only" ref={menu}>
        <IconButton
          icon="menu"
          label="Show the chats"
          onClick={() => {
            state.drawer.value = true;
          }}
        />
      </div>
      <h1>{name}</h1>
      {session && <PlaceBadge session={session} />}
      {session && <span class="model">{session.model}</span>}
      {(session || id === null) && (
        <IconButton
          icon="sliders"
          label="Settings of this chat"
          class={session ? "desktop-only" : ""}
          onClick={() => {
            state.dialog.value = { kind: "settings", session: id };
          }}
        />
      )}
      {session && <SessionMenu session={session} label="More for this chat" />}
      {id !== null && (
        <IconButton
          icon="plus"
          label="New chat"
          class="phone-only"
          onClick={() => navigate(null)}
        />
      )}
    </header>
  );
}
