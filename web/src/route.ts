/** The session on screen is in the address (`#/c/conv_…`), so that reload and back work. */

export function sessionInHash(hash: string): string | null {
  const found = /^#\/c\/([\w-]+)$/.exec(hash);
  return found?.[1] ?? null;
}

export function hashOf(session: string | null): string {
  return session === null ? "#/" : `#/c/${session}`;
}
