"""Bytes in the middle of a file that are given back to the file system, as Linux does it."""

import ctypes
import errno
import os
from collections.abc import Callable
from functools import cache

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


def punch(fd: int, offset: int, num_bytes: int) -> None:
    """Have zeros in place of the bytes: nothing is written where the file system can make holes,
    and zeros are where it can't. Raises OSError."""
    code = _fallocate()(fd, _KEEP_SIZE | _PUNCH_HOLE, offset, num_bytes)
    if code in _UNSUPPORTED:
        _overwrite(fd, offset, num_bytes)
    elif code:
        raise OSError(code, os.strerror(code))


def _overwrite(fd: int, offset: int, num_bytes: int) -> None:
    zeros = memoryview(bytes(num_bytes))
    while zeros:
        num_written = os.pwrite(fd, zeros, offset)
        zeros, offset = zeros[num_written:], offset + num_written


@cache
def _fallocate() -> Callable[[int, int, int, int], int]:
    """The C library's call, which gives the error's number, 0 for none. Offsets have 64 bits."""
    library = ctypes.CDLL(None, use_errno=True)
    call = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if call is None:
        return lambda *_: errno.ENOSYS
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]

    def fallocate(fd: int, mode: int, offset: int, num_bytes: int) -> int:
        return 0 if call(fd, mode, offset, num_bytes) == 0 else ctypes.get_errno()

    return fallocate
