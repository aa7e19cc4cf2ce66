"""Blocks' bytes between the device and this process's memory, many at a time.

Where the device is the CPU, blocks are read and written where they are. Elsewhere a batch is
gathered on the device by one index operation, crosses in one copy through page-locked memory, and
is waited for once; coming back is the reverse. Memory that the device can reach (`reach`) is copied
to and from without the buffer in between.

Invariants:
    a carrier is used by one thread at a time
    what `fetch` and `rooms` gave is right until the next call of either
    when `put` or `put_from` returns, the blocks are on the device
"""

import logging
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import torch

from model.tiers.mover import Part

logger = logging.getLogger(__name__)

_MAX_BLOCKS = 32
"""In a buffer: as many as a spill has (`spills`)."""
_BUFFER_BYTES = 32 << 20
"""What a batch takes up on either side: enough that starting a copy costs nothing beside it."""
_IN_PLACE_BYTES = 64 << 20
"""Two threads who share a batch meet at its end, and the second is begun for each, so few are
quickest; but what is given up in the middle of one is lost."""


class Lane(Protocol):
    """What copying to and from a device needs beyond torch's own operations."""

    def empty(self, shape: Items[int], dtype: torch.dtype) -> torch.Tensor:
        """Host memory that the device copies to and from by itself."""
        ...

    def crossing(self) -> AbstractContextManager[None]:
        """Within it copies are only begun; when it ends, all of them are done."""
        ...

    def lock_pages(self, address: int, num_bytes: int) -> str | None:
        """Let the device reach host memory that is there already; why it can't, if it can't."""
        ...

    def unlock_pages(self, address: int) -> None:
        """Take that back."""
        ...


class CudaLane:
    """A stream of its own, which computing doesn't wait for."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def empty(self, shape: Items[int], dtype: torch.dtype) -> torch.Tensor:
        """Page-locked memory."""
        return torch.empty(tuple(shape), dtype=dtype, pin_memory=True)

    @contextmanager
    def crossing(self) -> Iterator[None]:
        """Waits asleep, not spinning: the engine's thread needs the processor."""
        with torch.cuda.stream(self._stream):
            yield
            end = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            end.record(self._stream)
            end.synchronize()

    def lock_pages(self, address: int, num_bytes: int) -> str | None:
        """Takes some tenths of a second a gigabyte."""
        cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        with torch.cuda.device(self._device):
            error = cudart.cudaHostRegister(address, num_bytes, 0)
            if error == cudart.cudaError.success:
                return None
            self._clear_error()
        return str(cudart.cudaGetErrorString(error))

    def _clear_error(self) -> None:
        """The failed call left its error behind, which the next kernel would be blamed for."""
        try:
            torch.zeros(1, device=self._device)
        except RuntimeError as exc:
            logger.debug("took the error away: %s", exc)

    def unlock_pages(self, address: int) -> None:
        """Before the memory is unmapped."""
        with torch.cuda.device(self._device):
            torch.cuda.cudart().cudaHostUnregister(address)  # type: ignore[no-untyped-call]


class InPlaceCarrier:
    """For a device whose memory is this process's: nothing is carried.

    `view` gives a block's own bytes, `copy` those of a part of one.
    """

    def __init__(
        self,
        block_bytes: int,
        view: Callable[[int], memoryview],
        copy: Callable[[Part], memoryview],
        block_size: int,
    ) -> None:
        self.block_bytes = block_bytes
        self.max_blocks = max(1, _IN_PLACE_BYTES // block_bytes)
        self._view = view
        self._copy = copy
        self._block_size = block_size

    def fetch(self, parts: Items[Part]) -> Items[memoryview]:
        """Full blocks where they are."""
        is_full = [num_tokens == self._block_size for _, num_tokens in parts]
        return [
            self._view(part[0]) if full else self._copy(part)
            for part, full in zip(parts, is_full, strict=True)
        ]

    def rooms(self, block_ids: Items[int]) -> Items[memoryview]:
        """The blocks themselves."""
        return [self._view(block_id) for block_id in block_ids]

    def put(self, block_ids: Items[int]) -> None:
        """They are there."""

    def reach(self, memory: memoryview) -> bool:
        """There is no device to copy by itself."""
        return False

    def let_go(self) -> None:
        """Nothing is reached."""

    def fetch_into(self, parts: Items[Part], rooms: Items[memoryview]) -> None:
        """Not without `reach`."""
        raise AssertionError("nothing is reached")

    def put_from(self, block_ids: Items[int], payloads: Items[memoryview]) -> None:
        """Not without `reach`."""
        raise AssertionError("nothing is reached")


class StagedCarrier:
    """Carries batches of `blocks`, `[N, …]` on any device, through a buffer on each side."""

    def __init__(self, blocks: torch.Tensor, lane: Lane) -> None:
        self.block_bytes = blocks[0].nbytes
        self.max_blocks = max(1, min(_MAX_BLOCKS, _BUFFER_BYTES // self.block_bytes))
        self._blocks = blocks
        self._lane = lane
        shape = (self.max_blocks, *blocks.shape[1:])
        self._gathered = torch.empty(shape, dtype=blocks.dtype, device=blocks.device)
        self._buffer = lane.empty(shape, blocks.dtype)
        self._ids = lane.empty((self.max_blocks,), torch.int64)
        self._views = [bytes_of(block) for block in self._buffer]
        self._reached: torch.Tensor | None = None

    def fetch(self, parts: Items[Part]) -> Items[memoryview]:
        """Gather, cross, wait once."""
        num = len(parts)
        with torch.inference_mode(), self._lane.crossing():
            ids = self._ids_on_device([block_id for block_id, _ in parts])
            torch.index_select(self._blocks, 0, ids, out=self._gathered[:num])
            self._buffer[:num].copy_(self._gathered[:num], non_blocking=True)
        for block, (_, num_tokens) in zip(self._buffer[:num], parts, strict=True):
            _blank(block, num_tokens)
        return self._views[:num]

    def rooms(self, block_ids: Items[int]) -> Items[memoryview]:
        """Places in the buffer."""
        return self._views[: len(block_ids)]

    def put(self, block_ids: Items[int]) -> None:
        """Cross, scatter, wait once."""
        if not (num := len(block_ids)):
            return
        with torch.inference_mode(), self._lane.crossing():
            ids = self._ids_on_device(block_ids)
            self._gathered[:num].copy_(self._buffer[:num], non_blocking=True)
            self._blocks.index_copy_(0, ids, self._gathered[:num])

    def _ids_on_device(self, block_ids: Items[int]) -> torch.Tensor:
        ids = self._ids[: len(block_ids)]
        ids.copy_(torch.tensor(block_ids, dtype=torch.int64))
        return ids.to(self._blocks.device, non_blocking=True)

    def reach(self, memory: memoryview) -> bool:
        """Page-lock it all. Where that fails, the buffer stays in between, and the log says so."""
        if not memory.nbytes:
            return False
        found = torch.frombuffer(memory, dtype=torch.uint8)
        why_not = self._lane.lock_pages(found.data_ptr(), memory.nbytes)
        if why_not is not None:
            logger.warning(
                "the device can't reach the CPU tier's memory (%s): blocks are copied twice. "
                "See `ulimit -l`",
                why_not,
            )
            return False
        self._reached = found
        return True

    def let_go(self) -> None:
        """Unlock it."""
        if self._reached is not None:
            self._lane.unlock_pages(self._reached.data_ptr())
            self._reached = None

    def fetch_into(self, parts: Items[Part], rooms: Items[memoryview]) -> None:
        """One copy a block, for the places don't lie together; waited for once."""
        assert self._reached is not None, "nothing is reached"
        targets = [self._block_in(room) for room in rooms]
        with torch.inference_mode(), self._lane.crossing():
            for (block_id, _), target in zip(parts, targets, strict=True):
                target.copy_(self._blocks[block_id], non_blocking=True)
        for (_, num_tokens), target in zip(parts, targets, strict=True):
            _blank(target, num_tokens)

    def put_from(self, block_ids: Items[int], payloads: Items[memoryview]) -> None:
        """One copy a block; waited for once."""
        assert self._reached is not None, "nothing is reached"
        with torch.inference_mode(), self._lane.crossing():
            for block_id, payload in zip(block_ids, payloads, strict=True):
                self._blocks[block_id].copy_(self._block_in(payload), non_blocking=True)

    def _block_in(self, place: memoryview) -> torch.Tensor:
        found = torch.frombuffer(place, dtype=torch.uint8)
        return found.view(self._blocks.dtype).view(self._blocks.shape[1:])


def _blank(block: torch.Tensor, num_tokens: int) -> None:
    """On the host: the device's own work and the copies don't wait for each other."""
    if num_tokens < block.shape[2]:
        block[:, :, num_tokens:] = 0


def bytes_of(block: torch.Tensor) -> memoryview:
    """A contiguous CPU tensor's memory, as bytes."""
    return memoryview(block.view(torch.uint8).numpy()).cast("B")  # type: ignore[arg-type]
