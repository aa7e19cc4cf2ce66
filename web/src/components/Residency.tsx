/** Where a chat's state is: a word and its size in the heading, a mark in the list. */
import { useApp } from "../app";
import { placeOf } from "../format";
import type { Session } from "../protocol";

function usePlace(session: Session) {
  const { state } = useApp();
  return placeOf(session, state.isLive(session), Date.now());
}

export function PlaceBadge({ session }: { session: Session }) {
  const place = usePlace(session);
  if (place === null) return null;
  return (
    <span class="place" data-place={place.kind} title={place.long}>
      <i class="place-dot" aria-hidden="true" />
      {place.short}
    </span>
  );
}

export function PlaceMark({ session }: { session: Session }) {
  const place = usePlace(session);
  if (place === null) return null;
  return (
    <span
      class="place-dot"
      data-place={place.kind}
      role="img"
      aria-label={place.long}
      title={place.long}
    />
  );
}
