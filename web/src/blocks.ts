/**
 * Splits a growing Markdown text into blocks that will never change again and one that may. Pure.
 *
 * A later line can only change the last open top-level block, and only whole lines count: the
 * beginning of a line may still turn out to be anything ("2" becomes the list item "2. x").
 * Invariants: the blocks joined are the text; however the text arrived, the same blocks result.
 */
import { parseBlocks } from "./markdown";

export interface Split {
  /** Sources of the finished blocks, in order; only ever appended to. */
  readonly done: readonly string[];
  /** What may still change. */
  readonly tail: string;
}

export const NOTHING: Split = { done: [], tail: "" };

/** The split of `text`, given the split of a prefix of it; any other text starts afresh. */
export function split(text: string, before: Split, length: number): Split {
  const known = length <= text.length ? before : NOTHING;
  const start = known === before ? length - before.tail.length : 0;
  const tail = text.slice(start);
  const wholeLines = tail.lastIndexOf("\n") + 1;
  if (wholeLines === 0) return { done: known.done, tail };
  const starts = parseBlocks(tail.slice(0, wholeLines));
  if (starts.length < 2) return { done: known.done, tail };
  const finished = starts
    .slice(0, -1)
    .map((from, i) => tail.slice(i === 0 ? 0 : from, starts[i + 1]));
  return { done: [...known.done, ...finished], tail: tail.slice(starts.at(-1)) };
}

/** Follows one growing text. A text that does not continue the last one is split from the start. */
export class Splitter {
  #text = "";
  #split: Split = NOTHING;

  next(text: string): Split {
    const grows = text.startsWith(this.#text);
    this.#split = grows ? split(text, this.#split, this.#text.length) : split(text, NOTHING, 0);
    this.#text = text;
    return this.#split;
  }
}
