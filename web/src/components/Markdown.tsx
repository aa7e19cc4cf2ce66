/**
 * A reply's text. Finished blocks are rendered once and kept; while the reply grows only its last
 * block is rendered again.
 */
import { memo } from "preact/compat";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { Splitter } from "../blocks";
import { renderMarkdown } from "../markdown";

export function Markdown({ text, growing }: { text: string; growing: boolean }) {
  const splitter = useMemo(() => new Splitter(), []);
  const { done, tail } = splitter.next(text);
  const blocks = [...done, tail];
  return (
    <div class={growing ? "prose growing" : "prose"}>
      {blocks.map((source, i) => (
        // Blocks are only appended to, so the place is the identity.
        <Block key={i} source={source} />
      ))}
    </div>
  );
}

const Block = memo(function Block({ source }: { source: string }) {
  const box = useRef<HTMLDivElement>(null);
  // Nodes, not a string: nothing is parsed a second time after it was sanitised.
  useLayoutEffect(() => box.current?.replaceChildren(renderMarkdown(source)), [source]);
  return <div class="block" ref={box} />;
});
