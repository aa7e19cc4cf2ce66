"""What would stop a start, as far as it can be known before anything is fetched and loaded."""

from pathlib import Path
from typing import Final

import psutil

from app.database_place import check_place
from app.kv_files import cipher
from app.settings import Settings, SettingsError
from model.config import Device

_CUDA_DRIVER: Final = Path("/dev/nvidiactl")
_GIB: Final = 1024**3


def check_start(settings: Settings) -> None:
    """Raise SettingsError or RefusalError with what to do. The data folder must be there."""
    check_place(settings)
    cipher()
    check_memory(settings)


def check_memory(settings: Settings) -> None:
    """Raise SettingsError for a cache that is larger than the memory of this machine.

    Whether weights and cache fit into what is free only shows once the model is known; and nothing
    is said of a card's memory, which would take torch to ask for.
    """
    may_be_card = settings.device is not Device.CPU and _CUDA_DRIVER.exists()
    total = psutil.virtual_memory().total
    wanted = {"cpu_cache_bytes": int(settings.cpu_cache_bytes)}
    if not may_be_card:
        wanted["cache_bytes"] = int(settings.cache_bytes or 0)
    for name, num_bytes in wanted.items():
        if num_bytes > total:
            raise SettingsError(
                f"{name} is {num_bytes / _GIB:,.1f} GiB, and this machine has "
                f"{total / _GIB:,.1f} GiB of memory in all: lower --{name.replace('_', '-')}"
            )
