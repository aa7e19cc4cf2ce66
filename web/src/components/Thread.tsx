/** The conversation on screen: one branch of its tree, and what is still unsent below it. */
import { useMemo, useRef } from "preact/hooks";
import { useApp } from "../app";
import { copyText } from "../clipboard";
import { useStick } from "../hooks/stick";
import type { Outgoing } from "../state";
import { type PathStep, pathOf } from "../tree";
import { Exchange } from "./Exchange";
import { Icon } from "./Icon";
import { Problem } from "./Problem";
import { Unsent } from "./Unsent";
import { Welcome } from "./Welcome";

export function Thread() {
  const { state } = useApp();
  const session = state.current.value;
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const away = state.sought.value !== null;
  const stick = useStick(scroller, content, `${session} ${state.sends.value}`, away);
  return (
    <div class="thread-frame">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolled region is reached by keyboard */}
      <section class="thread" ref={scroller} aria-label="Conversation" tabIndex={0}>
        {/* biome-ignore lint/a11y/noStaticElementInteractions: serves the copy buttons inside */}
        {/* biome-ignore lint/a11y/useKeyWithClickEvents: a button's click comes by keyboard too */}
        <div class="column" ref={content} onClick={onCopyClick}>
          {session === null ? <NewChat /> : <Branch session={session} key={session} />}
        </div>
      </section>
      {!stick.following && (
        <button type="button" class="to-end" onClick={() => stick.toEnd(true)}>
          <Icon name="down" />
          <span class="hidden">Go to the latest message</span>
        </button>
      )}
    </div>
  );
}

function NewChat() {
  const { state, chat } = useApp();
  const opening = state.opening.value;
  if (!opening) return <Welcome />;
  return (
    <Unsent
      text={opening.text}
      trouble={opening.trouble}
      onRetry={() => chat.retryOpening()}
      onTakeBack={() => chat.setDraft(chat.takeBack(null))}
    />
  );
}

function Branch({ session }: { session: string }) {
  const { state, chat, navigate } = useApp();
  const load = state.load(session).value;
  const turns = state.structure(session);
  const choices = state.choices(session).value;
  const head = state.session(session)?.head ?? null;
  const path = useMemo(() => pathOf(turns, head, choices), [turns, head, choices]);
  const outgoing = state.outgoing.value.filter((one) => one.session === session);
  if (path.length === 0 && outgoing.length === 0) {
    if (load === "loading") return <Skeleton />;
    if (load === "ready") return <Welcome />;
    return (
      <Problem trouble={load}>
        {load.retryable ? (
          <button type="button" class="button" onClick={() => void chat.loadTurns(session)}>
            Try again
          </button>
        ) : (
          <button type="button" class="button" onClick={() => navigate(null)}>
            New chat
          </button>
        )}
      </Problem>
    );
  }
  const ids = path.map((step) => step.turn.id);
  const pending = outgoing.find(({ parent }) => !parent || ids.includes(parent));
  const shown = upTo(path, ids, pending?.parent);
  const busy = [...state.live.value.values()].includes(session) || isUnderway(pending);
  return (
    <>
      {shown.map(({ turn, siblings }, i) => {
        const signal = state.turn(turn.id);
        const versions = siblings.map((sibling) => sibling.id);
        return (
          signal && (
            <Exchange
              key={turn.id}
              turn={signal}
              siblings={versions}
              session={session}
              busy={busy}
              last={i === shown.length - 1}
            />
          )
        );
      })}
      {pending && (
        <Unsent
          key={pending.id}
          text={pending.text}
          trouble={pending.trouble}
          onRetry={() => chat.retry(pending)}
          onTakeBack={
            pending.regenerates === null
              ? () => chat.setDraft(chat.takeBack(pending))
              : () => void chat.takeBack(pending)
          }
        />
      )}
    </>
  );
}

/** What stands before a message: all of it where the message goes to the end (undefined). */
function upTo(path: readonly PathStep[], ids: readonly string[], parent?: string | null) {
  if (parent === undefined) return path;
  return parent === null ? [] : path.slice(0, ids.indexOf(parent) + 1);
}

function isUnderway(outgoing: Outgoing | undefined): boolean {
  return outgoing !== undefined && outgoing.trouble === null;
}

function Skeleton() {
  return (
    <div class="skeleton" role="status" aria-label="Loading the conversation">
      <i class="skeleton-said" />
      <i />
      <i />
      <i class="skeleton-short" />
    </div>
  );
}

/** One listener for the copy buttons of all code blocks, which are not components. */
function onCopyClick(event: MouseEvent): void {
  const button = event.target instanceof Element ? event.target.closest(".code-copy") : null;
  const code = button?.closest(".code")?.querySelector("pre")?.textContent;
  if (!button || code === undefined || code === null) return;
  void copyText(code.replace(/\n$/, "")).then((copied) => {
    button.textContent = copied ? "Copied" : "Not copied";
    setTimeout(() => {
      button.textContent = "Copy";
    }, 1_600);
  });
}
