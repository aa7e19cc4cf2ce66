/**
 * A session's turns as a tree, and the one branch of it that is on screen. Pure.
 *
 * Regenerate and edit make siblings; at each fork of the tree the reader's choice wins, else the
 * branch that holds the head, else the youngest.
 */
import type { Turn } from "./turn";

export interface PathStep {
  readonly turn: Turn;
  /** All versions of this step, oldest first; the turn itself is among them. */
  readonly siblings: readonly Turn[];
}

/** Sibling chosen below a parent; the key of the roots is "". */
export type Choices = ReadonlyMap<string, string>;

const ROOT = "";

export function parentKey(parent: string | null): string {
  return parent ?? ROOT;
}

export function pathOf(
  turns: readonly Turn[],
  head: string | null,
  choices: Choices,
): readonly PathStep[] {
  const children = childrenOf(turns);
  const onHead = ancestorsOf(turns, head);
  const path: PathStep[] = [];
  let key = ROOT;
  // Bounded by the number of turns: a malformed tree must not hang the page.
  for (let step = 0; step <= turns.length; step += 1) {
    const siblings = children.get(key);
    const youngest = siblings?.at(-1);
    if (!siblings || !youngest) break;
    const chosen = siblings.find((turn) => turn.id === choices.get(key));
    const turn = chosen ?? siblings.find((turn) => onHead.has(turn.id)) ?? youngest;
    path.push({ turn, siblings });
    key = turn.id;
  }
  return path;
}

function childrenOf(turns: readonly Turn[]): Map<string, Turn[]> {
  const known = new Set(turns.map((turn) => turn.id));
  const children = new Map<string, Turn[]>();
  for (const turn of turns) {
    // A parent that was not sent (a trimmed list) makes its child a root.
    const key = turn.parent !== null && known.has(turn.parent) ? turn.parent : ROOT;
    const siblings = children.get(key);
    if (siblings) siblings.push(turn);
    else children.set(key, [turn]);
  }
  for (const siblings of children.values()) siblings.sort(byAge);
  return children;
}

function ancestorsOf(turns: readonly Turn[], head: string | null): Set<string> {
  const byId = new Map(turns.map((turn) => [turn.id, turn]));
  const found = new Set<string>();
  let turn = head === null ? undefined : byId.get(head);
  while (turn && !found.has(turn.id)) {
    found.add(turn.id);
    turn = turn.parent === null ? undefined : byId.get(turn.parent);
  }
  return found;
}

function byAge(a: Turn, b: Turn): number {
  // Seconds are coarse; the sort is stable, so turns of one second keep the server's order.
  return a.createdAt - b.createdAt;
}
