"""What is remembered of a conversation when its blocks are gone: enough to name a miss's reason.

Bounded: the conversations heard of longest ago are forgotten, and then count as new ones whose
known tokens were evicted.
"""

from collections import OrderedDict
from dataclasses import dataclass

from model.messages import GenerationRequest, MissReason

_MAX_RECORDS = 100_000
"""A record is two short strings and a number: some tens of megabytes in all."""


@dataclass(frozen=True, slots=True)
class _ClaimRecord:
    owner: str
    num_claims: int


class ClaimRecords:
    """The owner each conversation was last claimed by, and how often it was."""

    def __init__(self, max_records: int = _MAX_RECORDS) -> None:
        self._max_records = max_records
        self._by_conversation: OrderedDict[str, _ClaimRecord] = OrderedDict()

    def num_claims(self, conversation_id: str) -> int:
        """How often the conversation was claimed."""
        record = self._by_conversation.get(conversation_id)
        return 0 if record is None else record.num_claims

    def remember(self, request: GenerationRequest) -> None:
        """Note a claim."""
        if request.conversation_id is None:
            return
        num_claims = self.num_claims(request.conversation_id) + 1
        self._by_conversation[request.conversation_id] = _ClaimRecord(request.owner, num_claims)
        self._by_conversation.move_to_end(request.conversation_id)
        if len(self._by_conversation) > self._max_records:
            self._by_conversation.popitem(last=False)

    def forget(self, conversation_id: str) -> None:
        """The conversation is gone for good."""
        self._by_conversation.pop(conversation_id, None)

    def explain(
        self, request: GenerationRequest, num_reused: int, fingerprint: str
    ) -> tuple[MissReason | None, int | None]:
        """Why fewer than the known tokens were reused, and where the prompt left its history if it
        did. None when everything was reused that could be.

        The last known token never had keys and values, so one less than known is everything.
        """
        if request.num_known_tokens == 0:
            return MissReason.NEW, None
        if request.parent_fingerprint not in (None, fingerprint):
            return MissReason.FINGERPRINT_CHANGED, None
        diverged_at = request.diverged_at
        reachable = request.num_known_tokens if diverged_at is None else diverged_at
        if num_reused < min(reachable, len(request.token_ids)) - 1:
            return self._lost(request), diverged_at
        return (None, None) if diverged_at is None else (MissReason.DIVERGED, diverged_at)

    def _lost(self, request: GenerationRequest) -> MissReason:
        """Blocks of another owner may still be there; this one's hashes never name them."""
        ids = (request.conversation_id, request.origin_conversation_id)
        known = [self._by_conversation.get(conversation_id or "") for conversation_id in ids]
        owners = {record.owner for record in known if record is not None}
        return MissReason.EVICTED if owners <= {request.owner} else MissReason.SALT
