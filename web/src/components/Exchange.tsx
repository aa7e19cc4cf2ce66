/** One turn on screen: what was said, the reply as far as it is, and what can be done with it. */
import type { Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { useApp } from "../app";
import { trouble } from "../errors";
import { isActive, type Turn } from "../turn";
import { CopyButton } from "./CopyButton";
import { IconButton } from "./IconButton";
import { Markdown } from "./Markdown";
import { Metrics } from "./Metrics";
import { Problem } from "./Problem";
import { Said } from "./Said";

interface Props {
  turn: Signal<Turn>;
  siblings: readonly string[];
  /** The session on screen; a turn of its origin can be forked here, not changed. */
  session: string;
  busy: boolean;
  /** Nothing follows it on screen. */
  last: boolean;
}

export function Exchange({ turn: signal, siblings, session, busy, last }: Props) {
  const { state, chat } = useApp();
  const turn = signal.value;
  const box = useRef<HTMLElement>(null);
  const sought = state.sought.value === turn.id;
  useEffect(() => {
    if (sought) box.current?.scrollIntoView({ block: "center" });
  }, [sought]);
  const own = turn.session === session;
  const active = isActive(turn);
  const onEdit = own && !busy ? (text: string) => chat.edit(turn, text) : null;
  return (
    <article class={sought ? "exchange sought" : "exchange"} ref={box}>
      <Said text={turn.input} turn={turn.id} onEdit={onEdit} />
      <div class="reply" aria-busy={active}>
        <span class="hidden">Reply:</span>
        {active && !turn.text ? <Waiting /> : <Markdown text={turn.text} growing={active} />}
        {!active && <Ending turn={turn} canRepeat={own && !busy} last={last} />}
        {!active && (
          <footer class="reply-foot">
            {turn.metrics && <Metrics metrics={turn.metrics} />}
            <div class="tools">
              <Versions session={session} turn={turn} siblings={siblings} />
              {turn.text && <CopyButton text={() => turn.text} label="Copy reply" />}
              {own && (
                <IconButton
                  icon="again"
                  label="Regenerate"
                  disabled={busy}
                  onClick={() => chat.regenerate(turn)}
                />
              )}
              <IconButton
                icon="fork"
                label="Fork: continues without recomputing"
                onClick={() => void chat.fork(turn)}
              />
            </div>
          </footer>
        )}
      </div>
    </article>
  );
}

export function Waiting() {
  return (
    <div class="waiting" role="img" aria-label="The reply is coming">
      <i />
      <i />
      <i />
    </div>
  );
}

/** Replies that ended early, and nothing is wrong. */
const CUT: Record<string, string> = {
  max_output_tokens: "Cut off at the length limit",
  deadline: "Cut off at the time limit",
};

/** Why a reply ended otherwise than by itself. */
function Ending({ turn, canRepeat, last }: { turn: Turn; canRepeat: boolean; last: boolean }) {
  const { chat } = useApp();
  if (turn.status === "completed") return null;
  const goOn = canRepeat && last && turn.text !== "" && (
    <button type="button" class="button" onClick={() => chat.continue(turn)}>
      Continue
    </button>
  );
  const words = turn.status === "cancelled" ? "Stopped" : CUT[turn.reason ?? ""];
  if (turn.status !== "failed" && words !== undefined) {
    return (
      <p class="ending">
        {words} {goOn}
      </p>
    );
  }
  const what =
    turn.status === "failed"
      ? trouble(turn.error?.code ?? "internal", turn.error?.message ?? "", turn.error?.retryable)
      : { code: "", title: "The reply was interrupted.", detail: null, retryable: true };
  return (
    <Problem trouble={what}>
      {turn.status === "incomplete" && goOn}
      {canRepeat && what.retryable && (
        <button type="button" class="button" onClick={() => chat.regenerate(turn)}>
          Try again
        </button>
      )}
    </Problem>
  );
}

interface VersionsProps {
  session: string;
  turn: Turn;
  siblings: readonly string[];
}

/** ‹ 2 / 3 ›: the versions that regenerating and editing made. */
function Versions({ session, turn, siblings }: VersionsProps) {
  const { state, chat } = useApp();
  if (siblings.length < 2) return null;
  const at = siblings.indexOf(turn.id);
  const go = (to: number) => {
    const sibling = state.turn(siblings[to] ?? "")?.peek();
    if (sibling) chat.choose(session, sibling);
  };
  return (
    <fieldset class="versions" aria-label="Versions">
      <IconButton
        icon="left"
        label="Version before"
        disabled={at <= 0}
        onClick={() => go(at - 1)}
      />
      <span>
        {at + 1} / {siblings.length}
      </span>
      <IconButton
        icon="right"
        label="Next version"
        disabled={at >= siblings.length - 1}
        onClick={() => go(at + 1)}
      />
    </fieldset>
  );
}
