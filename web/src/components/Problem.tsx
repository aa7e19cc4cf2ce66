/** Something went wrong here, what it means, and what can be done about it. */
import type { ComponentChildren } from "preact";
import { advice, type Trouble } from "../errors";
import { Icon } from "./Icon";

export function Problem({ trouble, children }: { trouble: Trouble; children?: ComponentChildren }) {
  const tip = advice(trouble.code);
  return (
    <div class="problem" role="alert">
      <Icon name="alert" />
      <div>
        <p class="problem-title">{trouble.title}</p>
        {trouble.detail && <p>{trouble.detail}</p>}
        {tip && <p>{tip}</p>}
        {children && <div class="problem-actions">{children}</div>}
      </div>
    </div>
  );
}
