/** The message box. Enter sends, Shift+Enter breaks the line; while a reply comes it stops it. */
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { useApp } from "../app";
import { Icon } from "./Icon";

const MAX_HEIGHT_PX = 240;

export function Composer() {
  const { state, chat } = useApp();
  const box = useRef<HTMLTextAreaElement>(null);
  const session = state.current.value;
  const text = state.draft.value;
  const running = isRunning(state, session);
  const stopping = isStopping(state, session);

  useLayoutEffect(() => {
    const area = box.current;
    if (!area) return;
    // By script, not by attribute: the content policy allows this.
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight, MAX_HEIGHT_PX)}px`;
  }, [text, session]);

  useEffect(() => {
    // On a phone the focus would open the keyboard over what is to be read.
    if (!matchMedia("(hover: hover)").matches) return;
    // Who has just deleted this chat by keyboard is at the way back.
    if (!document.activeElement?.closest(".toast")) box.current?.focus();
  }, [session]);

  const send = () => {
    const message = text.trim();
    if (!message || running) return;
    chat.setDraft("");
    chat.send(message);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    // keyCode 229: Safari ends a composition before the key that ends it.
    if (event.key === "ArrowUp" && text === "") {
      event.preventDefault();
      chat.editLast();
    }
    const composing = event.isComposing || event.keyCode === 229;
    if (event.key !== "Enter" || event.shiftKey || composing) return;
    event.preventDefault();
    send();
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <div class="composer-box">
        <label class="hidden" for="message">
          Message
        </label>
        <textarea
          id="message"
          ref={box}
          rows={1}
          placeholder="Write a message"
          autocomplete="off"
          enterkeyhint="send"
          value={text}
          onInput={(event) => chat.setDraft(event.currentTarget.value)}
          onKeyDown={onKeyDown}
        />
        {running ? (
          <button
            type="button"
            class="send"
            aria-label="Stop"
            title="Stop (Esc)"
            disabled={stopping}
            onClick={() => chat.stop()}
          >
            <Icon name="stop" />
          </button>
        ) : (
          <button type="submit" class="send" aria-label="Send" title="Send" disabled={!text.trim()}>
            <Icon name="send" />
          </button>
        )}
      </div>
      <p class="composer-hint" aria-hidden="true">
        {running ? (
          <>
            <kbd>Esc</kbd> stops the reply
          </>
        ) : (
          <>
            <kbd>Enter</kbd> sends, <kbd>Shift</kbd> <kbd>Enter</kbd> breaks the line,{" "}
            <kbd>Ctrl</kbd> <kbd>/</kbd> lists the shortcuts
          </>
        )}
      </p>
    </form>
  );
}

type AppState = ReturnType<typeof useApp>["state"];

export function isRunning(state: AppState, session: string | null): boolean {
  if (session === null) return state.opening.value !== null && state.opening.value.trouble === null;
  const unconfirmed = state.outgoing.value.some((one) => one.session === session && !one.trouble);
  return unconfirmed || [...state.live.value.values()].includes(session);
}

function isStopping(state: AppState, session: string | null): boolean {
  for (const [turn, where] of state.live.value) {
    if (where === session && state.stopping.value.has(turn)) return true;
  }
  return state.outgoing.value.some((one) => one.session === session && one.stop && !one.trouble);
}
