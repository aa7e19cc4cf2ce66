"""OpenAI's own clients, pointed at a Splice server and, if wanted, at one of its conversations.

The package `openai` is imported when a client is asked for, and never before. Its clients repeat
what was not answered, so whatever goes into a conversation carries a key by which the server knows
it again.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from splice.endpoint import Endpoint
from splice.transport import KEY_HEADER

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

MODEL = "default"
"""The name under which every server has its model."""

# While the server has no keys any will do, and OpenAI's clients want one.
_NO_KEY = "none"
_NAME_A_MODEL = (
    "/responses",
    "/responses/input_tokens",
    "/responses/compact",
    "/chat/completions",
    "/completions",
)
_NAME_A_PLACE = ("/responses", "/responses/input_tokens")
_PLACES = ("conversation", "previous_response_id")


class _Arguments(TypedDict):
    base_url: str
    api_key: str
    timeout: float
    max_retries: int
    default_headers: Mapping[str, str]


def openai_client(endpoint: Endpoint, conversation: str | None = None) -> "OpenAI":
    """The client that blocks. Raises ImportError where the package `openai` is missing."""
    try:
        from openai import OpenAI
    except ModuleNotFoundError as exc:
        raise _missing(exc) from exc

    class BoundOpenAI(OpenAI):
        """Names the model and the conversation where the caller names none."""

        def _prepare_options(self, options: Any) -> Any:  # noqa: ANN401 (openai's own)
            return super()._prepare_options(_bound(options, conversation))

    return BoundOpenAI(**_arguments(endpoint))


def async_openai(endpoint: Endpoint, conversation: str | None = None) -> "AsyncOpenAI":
    """The client that is awaited. Raises ImportError where the package `openai` is missing."""
    try:
        from openai import AsyncOpenAI
    except ModuleNotFoundError as exc:
        raise _missing(exc) from exc

    class BoundAsyncOpenAI(AsyncOpenAI):
        """Names the model and the conversation where the caller names none."""

        async def _prepare_options(self, options: Any) -> Any:  # noqa: ANN401 (openai's own)
            return await super()._prepare_options(_bound(options, conversation))

    return BoundAsyncOpenAI(**_arguments(endpoint))


def _arguments(endpoint: Endpoint) -> _Arguments:
    return {
        "base_url": endpoint.openai_url,
        "api_key": endpoint.api_key or _NO_KEY,
        "timeout": endpoint.timeout_s,
        "max_retries": endpoint.max_retries,
        "default_headers": endpoint.headers,
    }


def _bound(options: Any, conversation: str | None) -> Any:  # noqa: ANN401 (openai's own)
    """The options of a request, with what it left out; they may be shared with its repetition."""
    body = options.json_data
    if options.method.lower() != "post" or not isinstance(body, Mapping):
        return options
    said = {**body, **(options.extra_json or {})}
    added: dict[str, str] = {}
    if options.url in _NAME_A_MODEL and said.get("model") is None:
        added["model"] = MODEL
    is_placed = any(said.get(name) is not None for name in _PLACES)
    if conversation is not None and options.url in _NAME_A_PLACE and not is_placed:
        added["conversation"] = conversation
    options.json_data = {**body, **added}
    if options.idempotency_key and _goes_into_a_conversation(options.url, {**said, **added}):
        headers = options.headers if isinstance(options.headers, Mapping) else {}
        options.headers = {KEY_HEADER: options.idempotency_key, **headers}
    return options


def _goes_into_a_conversation(url: str, said: Mapping[str, Any]) -> bool:
    if url == "/responses":
        return said.get("conversation") is not None
    return url.startswith("/conversations") and "items" in said


def _missing(exc: ModuleNotFoundError) -> ImportError:
    if exc.name != "openai":
        return exc  # the package is there, and what it needs is not
    return ImportError("OpenAI's client is not installed: pip install openai", name="openai")
