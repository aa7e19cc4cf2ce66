import { describe, expect, it } from "vitest";
import { NOTHING, Splitter, split } from "../src/blocks";
import { CODE, HOSTILE, TIDES } from "./replies";

const TEXTS: Record<string, string> = {
  tides: TIDES,
  code: CODE,
  hostile: HOSTILE,
  "loose list": "Intro\n\n1. one\n\n   more of one\n\n2. two\n\n- a\n\n  - b\n\nEnd.\n\n* c\n",
  "open fence": "Look:\n\n```js\nconst a = 1;\n\n\nconst b = 2;",
  "fence in list": "- a\n\n  ```\n  x\n\n  y\n  ```\n\n- b\n\ndone",
  setext: "Title\n===\n\ntext\nmore\n---\n\nend",
  table: "para\n| a | b |\n|---|---|\n| 1 | 2 |\n\nafter",
  definition: "see [a]\n\n[a]:\nhttps://example.org\n\nafter\n",
  blank: "\n\n\n  \ntext\n\n\n\nmore\n\n",
  quote: "> a\nlazy\n\n> b\n\n    indented\n\n    more\n\nend",
};

describe("split", () => {
  it.each(Object.entries(TEXTS))("never loses or changes a character: %s", (_, text) => {
    const splitter = new Splitter();
    for (let end = 0; end <= text.length; end += 1) {
      const { done, tail } = splitter.next(text.slice(0, end));
      expect(done.join("") + tail).toBe(text.slice(0, end));
    }
  });

  it.each(Object.entries(TEXTS))(
    "never changes a finished block, however it grows: %s",
    (_, text) => {
      const once = split(text, NOTHING, 0);
      for (const step of [1, 2, 3, 7, 50]) {
        const splitter = new Splitter();
        let before: readonly string[] = [];
        for (let end = 0; end < text.length; end += step) {
          const { done } = splitter.next(text.slice(0, end));
          expect(done.slice(0, before.length)).toEqual(before);
          before = done;
        }
        expect(splitter.next(text)).toEqual(once);
      }
    },
  );

  it("keeps a list with blank lines whole", () => {
    expect(split("1. a\n\n2. b\n\n3. c\n", NOTHING, 0).done).toEqual([]);
  });

  it("finishes a paragraph once a heading has begun behind it", () => {
    expect(split("one\n\n# two\n", NOTHING, 0)).toEqual({ done: ["one\n\n"], tail: "# two\n" });
  });

  it("starts afresh for a text that does not continue the last one", () => {
    const splitter = new Splitter();
    splitter.next("a\n\nb\n\nc\n");
    expect(splitter.next("x\n\ny\n")).toEqual({ done: ["x\n\n"], tail: "y\n" });
  });
});
