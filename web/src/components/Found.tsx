/** What was found, in place of the list of chats: where, and the words around it. */
import { useApp } from "../app";
import type { Hit } from "../protocol";
import { hashOf } from "../route";

export function Found() {
  const { state, library } = useApp();
  const search = state.search.value;
  if (search === null) return null;
  const { words, load, hits, hasMore } = search;
  if (typeof load === "object") {
    return (
      <div class="list-note" role="alert">
        <p>{load.title}</p>
        <button type="button" class="button" onClick={() => void library.search(words)}>
          Try again
        </button>
      </div>
    );
  }
  if (hits.length === 0) {
    return (
      <p class="list-note" role="status">
        {load === "loading" ? "Looking…" : `Nothing has “${words.trim()}” in it.`}
      </p>
    );
  }
  return (
    <section aria-busy={load === "loading"}>
      <h2>{hits.length === 1 ? "1 result" : `${hits.length}${hasMore ? "+" : ""} results`}</h2>
      <ul>
        {hits.map((hit) => (
          <li class="row" key={`${hit.kind} ${hit.id}`}>
            <a class="hit" href={hashOf(hit.conversation.id, hit.response_id)}>
              <span class="hit-title">
                {hit.kind === "title" ? (
                  <Marked hit={hit} />
                ) : (
                  hit.conversation.title || "Untitled chat"
                )}
              </span>
              {hit.kind === "message" && (
                <span class="hit-words">
                  <Marked hit={hit} />
                </span>
              )}
            </a>
          </li>
        ))}
      </ul>
      {hasMore && (
        <button type="button" class="button more" onClick={() => void library.searchMore()}>
          Show more
        </button>
      )}
    </section>
  );
}

function Marked({ hit }: { hit: Hit }) {
  // The places count characters, a string's index counts halves of some.
  const text = Array.from(hit.snippet);
  const parts = [];
  let from = 0;
  for (const [start = 0, end = 0] of hit.highlights) {
    parts.push(text.slice(from, start).join(""));
    parts.push(<mark key={start}>{text.slice(start, end).join("")}</mark>);
    from = end;
  }
  return (
    <>
      {parts}
      {text.slice(from).join("")}
    </>
  );
}
