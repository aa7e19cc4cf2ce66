"""How the engine is set up, and how one generation is sampled. Plain frozen values."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from model.eviction import EvictionPolicy
from model.grammar import Grammar


class Device(StrEnum):
    """Where weights and blocks live; `auto` takes CUDA when there is one."""

    AUTO = "auto"
    CUDA = "cuda"
    CPU = "cpu"


class Mode(StrEnum):
    """The two contracts of exactness.

    `exact`: float32 and the reference attention; the same ids and seed give the same tokens
    whatever was cached, batched, preempted or restored. `fast`: bfloat16 where the device
    computes in it, and the device's quickest attention.
    """

    EXACT = "exact"
    FAST = "fast"


class AttentionName(StrEnum):
    """Which attention backend runs; `auto` lets the mode decide."""

    AUTO = "auto"
    REFERENCE = "reference"
    BATCHED = "batched"
    CPU = "cpu"


class Quantization(StrEnum):
    """How many bits weights have while a CPU decodes; `auto` takes a file's own."""

    AUTO = "auto"
    NONE = "none"
    INT8 = "int8"
    INT4 = "int4"


class CompileMode(StrEnum):
    """Whether the model's step is compiled for this machine: `auto` while nobody computes, `first`
    before anybody may, `off` never."""

    AUTO = "auto"
    FIRST = "first"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Everything the engine's process needs to start.

    `model` is a local folder, a `.gguf` file, a Hugging Face id, or `"default"` for the embedded
    model. `num_blocks` wins over `cache_bytes`; with neither, a share of free memory is taken.
    `quantization` is for decoding on a CPU in `fast` mode.
    `max_context_tokens` can only lower what the model allows. `num_threads` 0 keeps torch's own.
    What is compiled for this machine lies in `native_dir`.
    A step has at most `token_budget` rows, and in `fast` mode as few prompt rows beside running
    replies as keep it under `max_itl_s`; in `exact` mode what a step computes depends on no clock.
    The tiers lie in `kv_dir`, each as large as its bytes, which are its bound; without them what
    the device gives up is computed again. A conversation that idles for so many seconds is stored
    in the tier. The CPU tier's memory is the front end's, which opens `cpu_tier_fd` for it, so that
    it outlives the engine's process. `kv_key`, 32 bytes in base64 or hex, encrypts what is on disk.
    `check_books` and `poison_blocks` are for tests: the first checks the block books after every
    step, the second fills every block that nobody may read any more with NaN.
    """

    model: str = "default"
    models_dir: Path = Path("data/models")
    native_dir: Path = Path("~/.cache/splice")
    device: Device = Device.AUTO
    mode: Mode = Mode.FAST
    attention: AttentionName = AttentionName.AUTO
    quantization: Quantization = Quantization.AUTO
    compile: CompileMode = CompileMode.OFF
    block_size: int = 16
    num_blocks: int | None = None
    cache_bytes: int | None = None
    token_budget: int = 512
    max_itl_s: float = 0.2
    max_running: int = 64
    max_waiting: int = 1024
    max_context_tokens: int | None = None
    num_threads: int = 0
    eviction: EvictionPolicy = EvictionPolicy.VALUE
    kv_dir: Path | None = None
    disk_tier_bytes: int = 0
    cpu_tier_bytes: int = 0
    cpu_tier_fd: int | None = None
    spill_to_cpu_after_s: float = 5.0
    spill_to_disk_after_s: float = 30.0
    kv_key: str | None = field(default=None, repr=False)
    check_books: bool = False
    poison_blocks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is drawn. `temperature` 0 is greedy; `top_k` 0 and `top_p` 1 are off.

    `seed` None means the engine draws one. A draw depends on (seed, position) alone, so nothing
    else in the batch can change it. `logit_bias` maps a token id to what is added to its logit.
    `max_output_tokens` None fills the context; `deadline_s` is counted from the request's arrival
    in the engine. `num_logprobs` asks for the log probability of each sampled token, and of so
    many likeliest ones beside it. `grammar` is the form that the reply must have: it ends where
    that is complete, and whatever else ends it leaves it incomplete.
    """

    max_output_tokens: int | None = None
    deadline_s: float | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logit_bias: tuple[tuple[int, float], ...] = ()
    num_logprobs: int | None = None
    grammar: Grammar | None = None
