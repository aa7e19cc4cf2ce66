/** A message that the server has not confirmed: on its way, waiting for a connection, or failed. */
import { useApp } from "../app";
import type { Trouble } from "../errors";
import { isComing } from "../health";
import { Waiting } from "./Exchange";
import { Problem } from "./Problem";
import { Said } from "./Said";

interface Props {
  text: string;
  trouble: Trouble | null;
  onRetry(): void;
  onTakeBack: (() => void) | null;
}

export function Unsent({ text, trouble, onRetry, onTakeBack }: Props) {
  const { state } = useApp();
  const held = state.link.value !== "open" || isComing(state.health.value);
  return (
    <article class="exchange">
      <Said text={text} turn={null} onEdit={null} />
      <div class="reply" aria-busy={trouble === null}>
        {trouble ? (
          <Problem trouble={trouble}>
            {trouble.retryable && (
              <button type="button" class="button" onClick={onRetry}>
                Try again
              </button>
            )}
            {onTakeBack && (
              <button type="button" class="button" onClick={onTakeBack}>
                Edit message
              </button>
            )}
          </Problem>
        ) : (
          <>
            <Waiting />
            {held && <p class="ending">Will be sent as soon as the server is ready</p>}
          </>
        )}
      </div>
    </article>
  );
}
