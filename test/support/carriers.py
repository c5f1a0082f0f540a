"""Ways of documents to a party that a recorder listens to: processes, the service, containers.

Each is a `PartyRunner` for the document link of a simulation; `carrying` gives them by name.  The
service is the one of the image, spoken to over a websocket as COINSTAC's engine does, in both of
its versions; every frame of both directions is kept.
"""

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from websockets.sync.client import ClientConnection, connect

from cape.engines.coinstac import service as serve
from cape.lab.engines import containers
from cape.protocol import wire
from cape.simulation import transports
from cape.simulation.transports import InProcess
from support import engines

ROOT = Path(__file__).parents[2]
CARRIERS = ("wire", "process", "service-1", "service-2", "docker")
ELSEWHERE = ("process", "service-1", "docker")
"""Parties run in other processes there: their secrets are not heard here."""


def carrying(through: str, sites: Mapping[str, Path], work: Path, transcript: Any) -> Any:
    """Return a context that gives the caller of that name."""
    if through == "wire":
        return nullcontext(InProcess(sites, work))
    if through == "process":
        return nullcontext(InProcesses(sites, work, transcript))
    if through == "docker":
        image = engines.image_of(transcript.computation)
        return containers.Containers(sites, work, work / "logs", image=image, memory="4g")
    return _service(InService(sites, work, transcript, version=int(through[-1])))


def without_folders(text: bytes) -> bytes:
    """Return a request without the engine's own names of folders: they are not ours to keep."""
    document = wire.loads(text, 2**27)
    return wire.dumps({name: document[name] for name in ("input", "cache")})


class InProcesses(InProcess):
    """Starts ``local.py`` or ``remote.py`` for every call, and keeps what it says on stderr."""

    def __init__(self, sites: Mapping[str, Path], work: Path, transcript: Any) -> None:
        super().__init__(sites, work)
        self._transcript = transcript

    def __call__(self, role: str, party: str, text: bytes) -> bytes:
        """Start the program, write the document, read the answer."""
        environment = self.own(party).environment(os.environ)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(
            [sys.executable, str(ROOT / f"{role}.py")], input=text, env=environment,
            capture_output=True, check=False,
        )  # fmt: skip
        self._transcript.note(f"stderr of {party}", done.stderr)
        if done.returncode:
            raise transports.ReportedError(done.stderr.decode().strip(), "")
        return done.stdout


class InService(InProcess):
    """Calls the service as the engine does: an empty connection, then one for the call."""

    port = 0

    def __init__(
        self, sites: Mapping[str, Path], work: Path, transcript: Any, *, version: int
    ) -> None:
        super().__init__(sites, work)
        self._transcript, self._version = transcript, version

    def _connect(self) -> ClientConnection:
        return connect(f"ws://127.0.0.1:{self.port}", max_size=None, compression=None)

    def __call__(self, role: str, party: str, text: bytes) -> bytes:
        """Hold the dialogue of one call and return what came on the party's standard output."""
        with self._connect():
            pass
        with mock.patch.dict(os.environ, self.own(party).environment({})):
            with self._connect() as connection:
                for frame in self._frames(role, text):
                    connection.send(frame)
                    raw = frame.encode() if isinstance(frame, str) else frame
                    if raw.startswith(b'{"command"') or not raw:
                        self._transcript.frames.append((party, "sent", raw))
                self._transcript.frames.append((party, "sent", without_folders(text)))
                said = {"stdout": b"", "stderr": b""}
                code = None
                while code is None:
                    raw = connection.recv(decode=False)
                    self._transcript.frames.append((party, "received", raw))
                    code = self._take(raw, said)
        if code:
            raise transports.ReportedError(said["stderr"].decode().strip(), "")
        return said["stdout"].strip()

    def _frames(self, role: str, text: bytes) -> Iterator[str | bytes]:
        if self._version == 2:
            yield f'{{"mode": "{role}", "data": {text.decode()}}}'
            return
        yield json.dumps({"command": "python", "args": [f"/computation/{role}.py"]})
        yield text.decode()
        yield b""

    def _take(self, raw: bytes, said: dict[str, bytes]) -> int | None:
        """Add a frame to the streams; returns the exit code once the call is over."""
        frame = wire.loads(raw, 2**27)
        data = frame.get("data")
        if self._version == 2:
            text = data.encode() if isinstance(data, str) else wire.dumps(data)
            said[frame["type"]] += text
            return frame.get("code", 0)
        if frame["type"] in said:
            said[frame["type"]] += (data or "").encode()
            return None
        return frame.get("code", 1)


class _Noted(logging.Handler):
    """Keeps what the service logs."""

    def __init__(self, transcript: Any) -> None:
        super().__init__(logging.DEBUG)
        self._transcript = transcript

    def emit(self, record: logging.LogRecord) -> None:
        self._transcript.note("log of the service", self.format(record).encode())


@contextmanager
def _service(caller: InService) -> Iterator[InService]:
    """Serve on a free port, in a thread of its own, with ears at the log."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        caller.port = probe.getsockname()[1]
    began = threading.Event()
    ends: list[Any] = []

    async def serving() -> None:
        stop, ready = asyncio.Event(), asyncio.Event()
        ends.append((asyncio.get_running_loop(), stop))
        running = asyncio.create_task(
            serve.service(stop, host="127.0.0.1", port=caller.port, ready=ready)
        )
        await asyncio.wait_for(ready.wait(), 10)
        began.set()
        await running

    thread = threading.Thread(target=asyncio.run, args=(serving(),))
    handler, log = _Noted(caller._transcript), serve.log
    level = log.level
    with mock.patch.object(serve, "PROGRAM_FOLDER", ROOT):
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        thread.start()
        try:
            assert began.wait(20), "the service does not listen"
            yield caller
        finally:
            log.removeHandler(handler)
            log.setLevel(level)
            for loop, stop in ends:
                loop.call_soon_threadsafe(stop.set)
            thread.join(20)
