/** What a screen reader is told of a growing reply: whole sentences, not tokens. Pure. */

export interface Announcement {
  readonly say: string;
  /** Up to where the text has been told. */
  readonly upTo: number;
}

/** The sentences that were finished since `from`; the rest as well once the reply has ended. */
export function announce(text: string, from: number, ended: boolean): Announcement {
  // A reply that was replaced is told from its beginning.
  const start = from <= text.length ? from : 0;
  const fresh = text.slice(start);
  const end = ended ? fresh.length : lastSentenceEnd(fresh);
  return { say: plain(fresh.slice(0, end)), upTo: start + end };
}

function lastSentenceEnd(text: string): number {
  let end = 0;
  for (const found of text.matchAll(/[.!?:。！？]["')\]]*\s|\n/g))
    end = found.index + found[0].length;
  return end;
}

/** Without the marks that would be read out as "asterisk". */
function plain(text: string): string {
  return text
    .replace(/[*_`#>|~]+/g, " ")
    .replace(/\s+/g, " ")
    .trim();
}
