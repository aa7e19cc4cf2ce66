"""What the front end is set up with: plain frozen values, filled by the command line.

Nothing below the composition root reads settings, the environment or a clock of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

from sessions.types import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingDefaults:
    """What the operator wants where a request names nothing; None leaves it to the model.

    `deadline_s` is a limit too: a request can only ask for less.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    deadline_s: float | None = None

    def over(self, model: SamplingParams) -> SamplingParams:
        """Lay them over what the model's makers recommend."""
        return replace(
            model,
            temperature=model.temperature if self.temperature is None else self.temperature,
            top_p=model.top_p if self.top_p is None else self.top_p,
            max_output_tokens=self.max_output_tokens,
            deadline_s=self.deadline_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AppConfig:
    """The front end's limits, deadlines and names.

    `allowed_origins` are whole origins (`https://chat.example`), beside the server's own;
    `allowed_hosts` are names without a port (`*` allows any), beside loopback names and IP
    addresses. `base_path` is empty or begins with a slash and ends without. `outbox_size` is in
    frames a socket, `max_streams` in replies a socket reads at once, `max_subscriptions` in
    sessions it watches, `max_frames_per_s` in frames it may send; its key is looked at every
    `key_check_s` though nothing is sent; `max_turns` in turns that run
    or wait; the limits of an owner are off where None. All owners may share the cached blocks of
    `public_instructions`, system prompts word for word. `page_dir` is where the built page lies;
    None serves no page. At the stop the engine gets `store_timeout_s` to
    bring conversations into its tiers, and at the start `warm_up_s` for busy system prompts.
    With `auto_titles` the model names sessions while nobody else wants it.
    """

    database_url: str
    runner_id: str
    clock: Callable[[], datetime]
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    version: str = "unknown"
    base_path: str = ""
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    max_body_bytes: int = 8 * 1024 * 1024
    outbox_size: int = 256
    max_streams: int = 64
    max_subscriptions: int = 64
    max_frames_per_s: int = 200
    max_sockets: int = 1024
    owner_max_sockets: int | None = None
    key_check_s: float = 5.0
    max_turns: int = 1088
    owner_max_turns: int | None = None
    owner_requests_per_minute: int | None = None
    send_timeout_s: float = 10.0
    heartbeat_s: float = 20.0
    sse_keepalive_s: float = 15.0
    drain_timeout_s: float = 20.0
    delete_grace_s: float = 86400.0
    store_timeout_s: float = 0.0
    warm_up_s: float = 0.0
    auto_titles: bool = False
    page_dir: Path | None = None
    model_aliases: tuple[str, ...] = ("default",)
    sampling: SamplingDefaults = field(default_factory=SamplingDefaults)
    public_instructions: frozenset[str] = frozenset()
