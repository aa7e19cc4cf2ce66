"""A websocket client that can stop reading, down to the kernel's buffers."""

import asyncio
import base64
import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson


class StuckPeer:
    """Sends frames and reads nothing, until asked to find out how the connection ended."""

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw
        self._loop = asyncio.get_running_loop()

    async def send(self, value: Any) -> None:
        data = orjson.dumps(value)
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
        if len(data) < 126:
            head = struct.pack("!BB", 0x81, 0x80 | len(data))
        else:
            head = struct.pack("!BBH", 0x81, 0x80 | 126, len(data))
        await self._loop.sock_sendall(self._raw, head + mask + masked)

    async def read_to_the_end(self) -> int:
        """Take what the kernel still has until the connection ends; the number of bytes."""
        num_bytes = 0
        try:
            while data := await self._loop.sock_recv(self._raw, 1 << 20):
                num_bytes += len(data)
        except ConnectionResetError:
            pass
        return num_bytes


@asynccontextmanager
async def stuck_peer(port: int, path: str = "/v1/ws") -> AsyncIterator[StuckPeer]:
    """Connect with a tiny receive buffer and shake hands. Raises ConnectionError when refused."""
    loop = asyncio.get_running_loop()
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        raw.setblocking(False)
        await loop.sock_connect(raw, ("127.0.0.1", port))
        key = base64.b64encode(os.urandom(16)).decode()
        lines = (
            f"GET {path} HTTP/1.1",
            "Host: localhost",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
        )
        await loop.sock_sendall(raw, ("\r\n".join(lines) + "\r\n\r\n").encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            if not (byte := await loop.sock_recv(raw, 1)):
                raise ConnectionResetError
            answer += byte
        if b" 101 " not in answer:
            raise ConnectionRefusedError(answer)
        yield StuckPeer(raw)
