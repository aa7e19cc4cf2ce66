/** Keeps the end of a growing text in view until the reader scrolls up. */
import type { RefObject } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

const NEAR_PX = 64;

export interface Stick {
  /** Whether the end is followed; the button to go there shows while it is not. */
  readonly following: boolean;
  toEnd(smooth: boolean): void;
}

/** `subject` changing (another chat) goes to the end at once. */
export function useStick(
  scroller: RefObject<HTMLElement | null>,
  content: RefObject<HTMLElement | null>,
  subject: string | null,
): Stick {
  const [following, setFollowing] = useState(true);
  const follows = useRef(true);
  const lastTop = useRef(0);

  const set = useCallback((value: boolean) => {
    follows.current = value;
    setFollowing(value);
  }, []);

  const toEnd = useCallback(
    (smooth: boolean) => {
      const box = scroller.current;
      if (!box) return;
      set(true);
      const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
      box.scrollTo({ top: box.scrollHeight, behavior: smooth && !calm ? "smooth" : "instant" });
    },
    [scroller, set],
  );

  useEffect(() => {
    const box = scroller.current;
    if (!box) return;
    const onScroll = () => {
      const distance = box.scrollHeight - box.scrollTop - box.clientHeight;
      // Only a move upwards is the reader's: growth moves nothing, and our own moves go down.
      if (distance <= NEAR_PX) set(true);
      else if (box.scrollTop < lastTop.current - 2) set(false);
      lastTop.current = box.scrollTop;
    };
    box.addEventListener("scroll", onScroll, { passive: true });
    return () => box.removeEventListener("scroll", onScroll);
  }, [scroller, set]);

  useEffect(() => {
    const box = scroller.current;
    const inner = content.current;
    if (!box || !inner) return;
    const observer = new ResizeObserver(() => {
      if (follows.current) box.scrollTop = box.scrollHeight;
    });
    observer.observe(inner);
    observer.observe(box);
    return () => observer.disconnect();
  }, [scroller, content]);

  useLayoutEffect(() => toEnd(false), [subject, toEnd]);

  return { following, toEnd };
}
