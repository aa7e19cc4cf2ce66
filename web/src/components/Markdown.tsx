/**
 * A reply's text. Finished blocks are rendered once and kept; while the reply grows only its last
 * block is rendered again. Code gets its colours once its block is finished.
 */
import { memo } from "preact/compat";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
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
        <Block key={i} source={source} settled={!growing || i < done.length} />
      ))}
    </div>
  );
}

interface BlockProps {
  source: string;
  /** It will not change any more. */
  settled: boolean;
}

const Block = memo(function Block({ source, settled }: BlockProps) {
  const box = useRef<HTMLDivElement>(null);
  // Nodes, not a string: nothing is parsed a second time after it was sanitised.
  useLayoutEffect(() => box.current?.replaceChildren(renderMarkdown(source)), [source]);
  useEffect(() => {
    const code = settled ? box.current?.querySelectorAll("pre > code[class]") : undefined;
    // Without its colours, when they can't be loaded.
    if (code?.length)
      void colours().then(
        (highlight) => code.forEach(highlight),
        () => undefined,
      );
  }, [source, settled]);
  return <div class="block" ref={box} />;
});

async function colours(): Promise<(code: Element) => void> {
  return (await import("../highlight")).highlight;
}
