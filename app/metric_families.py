"""Every metric that `/metrics` shows: its name, kind, labels and meaning.

One list, read by what counts (`app/metrics.py`) and by what documents (`app/metrics_docs.py`), so
that neither can name a metric that the other lacks. A counter's name is given without the `_total`
that it is exposed with; seconds and bytes are named as such.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """What may be asked of a metric: its value, its rate, its quantiles."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. `labels` has each label's name with what its values are."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def label_names(self) -> tuple[str, ...]:
        """The labels as Prometheus wants them."""
        return tuple(name for name, _ in self.labels)

    @property
    def series(self) -> tuple[str, ...]:
        """The names that a query can use."""
        match self.kind:
            case Kind.COUNTER:
                return (f"{self.name}_total",)
            case Kind.HISTOGRAM:
                return (f"{self.name}_bucket", f"{self.name}_count", f"{self.name}_sum")
            case Kind.GAUGE:
                return (self.name,)


# ---- the front end's

READY: Final = Family(
    "splice_ready", Kind.GAUGE, "Whether the server takes work: 1, or 0 while it loads or drains."
)
ACTIVE_TURNS: Final = Family("splice_active_turns", Kind.GAUGE, "Turns that have not ended.")
HTTP_REQUESTS: Final = Family(
    "splice_http_requests",
    Kind.COUNTER,
    "Answered requests.",
    (
        ("method", "the method, or `other`"),
        ("route", "the route's pattern, or `unmatched`"),
        ("status", "the answer's status"),
    ),
)
WS_CONNECTIONS: Final = Family("splice_ws_connections", Kind.GAUGE, "Open websockets.")
WS_FRAMES: Final = Family(
    "splice_ws_frames",
    Kind.COUNTER,
    "Frames received.",
    (("type", "the frame's type; `error` for those that could not be taken"),),
)
_TRANSPORT = (("transport", "`websocket` or `sse`"),)
STREAMS: Final = Family("splice_streams", Kind.GAUGE, "Replies being read.", _TRANSPORT)
SLOW_READERS: Final = Family(
    "splice_slow_readers",
    Kind.COUNTER,
    "Connections dropped because the peer took nothing.",
    _TRANSPORT,
)
LOOP_LAG: Final = Family(
    "splice_loop_lag_seconds",
    Kind.HISTOGRAM,
    "How late the front end's event loop came to what was due, twenty times a second.",
)

# ---- the engine's, missing while it is away

TTFT: Final = Family(
    "splice_ttft_seconds", Kind.HISTOGRAM, "From a request's arrival to its first token."
)
INTER_TOKEN: Final = Family(
    "splice_inter_token_seconds", Kind.HISTOGRAM, "Between two tokens of a reply."
)
QUEUE_TIME: Final = Family(
    "splice_queue_seconds", Kind.HISTOGRAM, "From a request's arrival to its blocks."
)
BLOCKS: Final = Family(
    "splice_blocks",
    Kind.GAUGE,
    "Blocks of the cache by what they hold.",
    (
        (
            "state",
            "`running` and `parked` tables, `cached` (free, contents still known), `empty`",
        ),
    ),
)
QUEUE_DEPTH: Final = Family("splice_queue_depth", Kind.GAUGE, "Generations that wait for blocks.")
RUNNING: Final = Family("splice_running", Kind.GAUGE, "Generations in flight.")
PARKED_TABLES: Final = Family("splice_parked_tables", Kind.GAUGE, "Block tables between turns.")
PROMPT_TOKENS: Final = Family(
    "splice_prompt_tokens",
    Kind.COUNTER,
    "Prompt tokens by where their state came from.",
    (("source", "a tier it was found in (`device`, `cpu`, `disk`), or `computed`"),),
)
MISSES: Final = Family(
    "splice_misses",
    Kind.COUNTER,
    "Claims that reused less than they could have.",
    (("reason", "why, as in a turn's `kv.reason`"),),
)
GENERATIONS: Final = Family(
    "splice_generations",
    Kind.COUNTER,
    "Ended generations.",
    (("reason", "`stop`, `length`, `deadline` or `cancelled`"),),
)
GENERATED_TOKENS: Final = Family("splice_generated_tokens", Kind.COUNTER, "Sampled tokens.")
COMPUTED_ROWS: Final = Family(
    "splice_computed_rows", Kind.COUNTER, "Rows that entered the model: what was really computed."
)
PREEMPTIONS: Final = Family(
    "splice_preemptions", Kind.COUNTER, "Generations set back for want of blocks."
)
EVICTED_BLOCKS: Final = Family(
    "splice_evicted_blocks", Kind.COUNTER, "Blocks whose contents were dropped."
)
BOOKS_FAILURES: Final = Family(
    "splice_books_failures", Kind.COUNTER, "Failed checks of the block pool; more than 0 is a bug."
)
ENGINE_STEPS: Final = Family("splice_engine_steps", Kind.COUNTER, "Steps of the engine.")
STEP_TIME: Final = Family("splice_step_seconds", Kind.HISTOGRAM, "A step of the engine.")
STEP_ROWS: Final = Family(
    "splice_step_rows",
    Kind.COUNTER,
    "Rows by whose they were.",
    (("kind", "`reply`: a running reply's next token; `prompt`"),),
)
PROMPT_CHUNKS: Final = Family(
    "splice_prompt_chunks",
    Kind.COUNTER,
    "Chunks of prompts; a step may have several, and a long prompt comes in many.",
)
HELD_STEPS: Final = Family(
    "splice_held_steps",
    Kind.COUNTER,
    "Steps that left prompt tokens for later so as not to take longer than `max_itl_s`.",
)
LATE_STEPS: Final = Family(
    "splice_late_steps",
    Kind.COUNTER,
    "Steps that kept running replies waiting for longer than `max_itl_s`.",
)
COMPILED_STEPS: Final = Family(
    "splice_compiled_steps", Kind.COUNTER, "Steps that the compiled step did."
)
COMPILED_STATE: Final = Family(
    "splice_compiled_state",
    Kind.GAUGE,
    "How it stands with the compiled step: 1 for its state.",
    (("state", "`off`, `waiting` (until nobody computes), `building`, `ready` or `unavailable`"),),
)
ENGINE_RESTARTS: Final = Family(
    "splice_engine_restarts", Kind.COUNTER, "Times the engine was started again."
)

_TIER = ("tier", "`cpu` or `disk`")
RESTORE_TIME: Final = Family(
    "splice_restore_seconds",
    Kind.HISTOGRAM,
    "How long a request's blocks took to come back from the tiers.",
)
TIER_ON: Final = Family(
    "splice_tier_on",
    Kind.GAUGE,
    "Whether a tier is asked: 1, or 0 for a while after its medium failed.",
    (_TIER,),
)
TIER_BLOCKS: Final = Family("splice_tier_blocks", Kind.GAUGE, "Blocks that a tier has.", (_TIER,))
TIER_CONVERSATIONS: Final = Family(
    "splice_tier_conversations", Kind.GAUGE, "Conversations that a tier has something of.", (_TIER,)
)
TIER_BYTES: Final = Family(
    "splice_tier_bytes", Kind.GAUGE, "Bytes that a tier takes up on its medium.", (_TIER,)
)
TIER_QUOTA: Final = Family(
    "splice_tier_quota_bytes", Kind.GAUGE, "Bytes that a tier may take up.", (_TIER,)
)
TIER_EVENTS: Final = Family(
    "splice_tier_events",
    Kind.COUNTER,
    "What happened in a tier.",
    (
        _TIER,
        (
            "event",
            "blocks `spilled`, `restored`, `evicted` and `lost`; `errors` of the medium; transfers "
            "`abandoned`",
        ),
    ),
)
_CAUSE = ("cause", "`request` (`…/warm`), or `start` (a system prompt)")
WARMINGS: Final = Family(
    "splice_warmings",
    Kind.COUNTER,
    "Warmings that are over.",
    (
        _CAUSE,
        (
            "outcome",
            "`used` by a turn within ten minutes, `in_vain`, or `needless`: it was on the device",
        ),
    ),
)
WARMED_TOKENS: Final = Family(
    "splice_warmed_tokens",
    Kind.COUNTER,
    "Tokens that were brought onto the device ahead.",
    (_CAUSE, ("source", "the tier, or `computed`")),
)

FRONT_END: Final = (
    READY,
    ACTIVE_TURNS,
    HTTP_REQUESTS,
    WS_CONNECTIONS,
    WS_FRAMES,
    STREAMS,
    SLOW_READERS,
    LOOP_LAG,
    WARMINGS,
    WARMED_TOKENS,
)
ENGINE: Final = (
    TTFT,
    INTER_TOKEN,
    QUEUE_TIME,
    BLOCKS,
    QUEUE_DEPTH,
    RUNNING,
    PARKED_TABLES,
    PROMPT_TOKENS,
    MISSES,
    GENERATIONS,
    GENERATED_TOKENS,
    COMPUTED_ROWS,
    PREEMPTIONS,
    EVICTED_BLOCKS,
    BOOKS_FAILURES,
    ENGINE_STEPS,
    STEP_TIME,
    STEP_ROWS,
    PROMPT_CHUNKS,
    HELD_STEPS,
    LATE_STEPS,
    COMPILED_STEPS,
    COMPILED_STATE,
    ENGINE_RESTARTS,
    RESTORE_TIME,
    TIER_ON,
    TIER_BLOCKS,
    TIER_CONVERSATIONS,
    TIER_BYTES,
    TIER_QUOTA,
    TIER_EVENTS,
)
FAMILIES: Final = (*FRONT_END, *ENGINE)
