"""Where a server is, and how it is spoken to."""

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_URL = "http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One server. `base_url` is without `/v1` and without a slash at its end."""

    base_url: str
    api_key: str | None = field(repr=False)
    timeout_s: float
    max_retries: int
    headers: Mapping[str, str] = field(repr=False)

    @classmethod
    def at(
        cls,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        max_retries: int = 3,
        headers: Mapping[str, str] | None = None,
    ) -> "Endpoint":
        """The server at an address as people write it: with `/v1`, or without `http://`."""
        base = url.rstrip("/").removesuffix("/v1").rstrip("/")
        return cls(
            base_url=base if "://" in base else f"http://{base}",
            api_key=api_key,
            timeout_s=timeout_s,
            max_retries=max_retries,
            headers=dict(headers or {}),
        )

    @property
    def sent_headers(self) -> dict[str, str]:
        """What every request carries; a header that was named wins over the key."""
        key = {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}
        return {**key, **self.headers}

    @property
    def openai_url(self) -> str:
        """The address that OpenAI's clients take."""
        return self.base_url + "/v1"
