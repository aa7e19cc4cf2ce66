/**
 * The session on screen is in the address, so that reload and back work: `#/c/conv_…`, and
 * `#/c/conv_…/resp_…` where one of its turns is what is looked for.
 */

export interface Place {
  readonly session: string | null;
  readonly turn: string | null;
}

export function placeIn(hash: string): Place {
  const found = /^#\/c\/([\w-]+)(?:\/([\w-]+))?$/.exec(hash);
  return { session: found?.[1] ?? null, turn: found?.[2] ?? null };
}

export function hashOf(session: string | null, turn: string | null = null): string {
  if (session === null) return "#/";
  return turn === null ? `#/c/${session}` : `#/c/${session}/${turn}`;
}
