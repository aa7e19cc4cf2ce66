/** Keeps the end of a growing text in view until the reader scrolls up. */
import type { RefObject } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

const NEAR_PX = 64;

export interface Stick {
  /** Whether the end is followed; the button to go there shows while it is not. */
  readonly following: boolean;
  toEnd(smooth: boolean): void;
}

/**
 * `subject` changing (another chat, a message sent) goes to the end at once; with `away` the
 * reader came for another place.
 */
export function useStick(
  scroller: RefObject<HTMLElement | null>,
  content: RefObject<HTMLElement | null>,
  subject: string,
  away: boolean,
): Stick {
  const [following, setFollowing] = useState(true);
  const follows = useRef(true);
  const last = useRef({ top: 0, height: 0, window: 0 });

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
      const now = { top: box.scrollTop, height: box.scrollHeight, window: box.clientHeight };
      // Only a move upwards is the reader's, and not even that when the text has become shorter
      // or a phone's keyboard has moved: the browser then moves by itself.
      const moved = now.height < last.current.height || now.window !== last.current.window;
      if (distance <= NEAR_PX) set(true);
      else if (!moved && now.top < last.current.top - 2) set(false);
      last.current = now;
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

  useLayoutEffect(() => (away ? set(false) : toEnd(false)), [subject, away, set, toEnd]);

  return { following, toEnd };
}
