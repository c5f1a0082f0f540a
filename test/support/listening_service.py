"""The service of the image with ears; runs inside a container of a test, never in a product.

Writes below ``/output/heard/<container>/`` every frame of both directions, and before each answer
leaves, the files that the party's output and transfer directories hold.
"""

import asyncio
import itertools
import re
import shutil
import socket
from pathlib import Path
from typing import Any

from cape.engines.coinstac import service

HEARD = Path("/output/heard") / socket.gethostname()
PLACES = re.compile(rb'"(output|transfer)Directory": ?"([^"]+)"')
_count = itertools.count()
_real = service._serve_one


class Ears:
    """A connection that writes down what goes through it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def _note(self, way: str, message: str | bytes) -> bytes:
        raw = message.encode() if isinstance(message, str) else message
        HEARD.mkdir(parents=True, exist_ok=True)
        (HEARD / f"{next(_count):05d}-{way}").write_bytes(raw)
        return raw

    def _came(self, message: str | bytes) -> None:
        for place, path in PLACES.findall(self._note("came", message)):
            serve_places[place.decode()] = Path(path.decode())

    async def recv(self) -> str | bytes:
        message = await self._connection.recv()
        self._came(message)
        return message

    async def __aiter__(self) -> Any:
        async for message in self._connection:
            self._came(message)
            yield message

    async def send(self, message: str | bytes) -> None:
        raw = self._note("left", message)
        if b'"end":true' in raw.replace(b" ", b""):
            for place, path in serve_places.items():
                if path.is_dir():
                    shutil.copytree(path, HEARD / f"{next(_count):05d}-{place}")
        await self._connection.send(message)


serve_places: dict[str, Path] = {}
"""The party's directories, as the last document named them: a service has one party."""


async def _serve_one(connection: Any, worker: Any) -> None:
    await _real(Ears(connection), worker)


service._serve_one = _serve_one

if __name__ == "__main__":
    asyncio.run(service.main())
