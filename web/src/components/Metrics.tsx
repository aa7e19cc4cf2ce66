/** Under a reply: how fast it was, and how much of the history did not have to be computed. */
import { duration, missReason, rate, reuse } from "../format";
import type { Metrics as Numbers } from "../protocol";

export function Metrics({ metrics }: { metrics: Numbers }) {
  const total = metrics.kv.reused + metrics.kv.computed;
  const share = total > 0 ? metrics.kv.reused / total : 0;
  const reason = missReason(metrics);
  return (
    <dl class="metrics">
      {metrics.ttft_ms !== null && (
        <Fact name="Time to first token">{duration(metrics.ttft_ms)} to first token</Fact>
      )}
      {metrics.tokens_per_second !== null && (
        <Fact name="Speed">{rate(metrics.tokens_per_second)}</Fact>
      )}
      <Fact name="Reuse">
        <Gauge share={share} />
        {reuse(metrics)}
        {reason !== null && <span class="metrics-reason">: {reason}</span>}
      </Fact>
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt class="hidden">{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** Drawn by attributes: the content policy allows no style in markup. */
function Gauge({ share }: { share: number }) {
  return (
    <svg class="gauge" viewBox="0 0 32 6" aria-hidden="true">
      <rect class="gauge-all" width="32" height="6" rx="3" />
      {share > 0 && <rect class="gauge-reused" width={Math.max(4, 32 * share)} height="6" rx="3" />}
    </svg>
  );
}
