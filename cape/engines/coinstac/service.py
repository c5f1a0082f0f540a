"""The image's service, ``python -m cape.engines.coinstac.service``: a websocket on port 8881.

version 2   a text ``{"mode": "local" | "remote", "data": document}``, one answer
version 1   COINSTAC's base image: command, standard input in pieces, an empty binary message; then
            the streams and the exit code.  Only the two commands of our compspec may start.

The engine probes with an empty connection.  The log contains no value, path or name.  Folders
outside the mounts of the image are refused.  Any client that reaches the port may call, because
COINSTAC's engine cannot send a token; other engines must send ``CAPE_SERVICE_TOKEN`` if it is set.
"""

import asyncio
import contextlib
import hmac
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as listen
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from cape.kernels import pin

pin()  # before numpy is imported

from cape.engines.coinstac.computation import become_owner, parse_document, play
from cape.engines.coinstac.documents import EngineRequest
from cape.errors import MessageError, public_text
from cape.protocol import wire
from cape.site.places import SitePlaces

HOST: Final = "0.0.0.0"  # noqa: S104 - the engine reaches the container from outside
PORT: Final = 8881
# Maximum characters of a stream in one message.
PIECE: Final = 2**20
PROGRAMS: Final = {f"/computation/{role}.py": role for role in ("local", "remote")}
PROGRAM_FOLDER = Path("/computation")
# Folders that engines mount; ``CAPE_MOUNTS`` replaces them, separated as in PATH.
MOUNTS_VARIABLE: Final = "CAPE_MOUNTS"
MOUNTS: Final = ("/input", "/output", "/transfer", "/cache", "/tmp")  # noqa: S108
TOKEN_VARIABLE: Final = "CAPE_SERVICE_TOKEN"  # noqa: S105
NO_TOKEN: Final = (
    f"no token is asked for ({TOKEN_VARIABLE} is not set; COINSTAC's engine cannot carry one): "
    "whoever reaches this port may call"
)

log = logging.getLogger("cape")


async def service(
    stop: asyncio.Event, *, host: str = HOST, port: int = PORT, ready: asyncio.Event | None = None
) -> None:
    """Answer calls until `stop` is set; `ready` is set once the port listens."""
    # One call at a time in a thread, so that the event loop stays free.
    worker = ThreadPoolExecutor(max_workers=1)

    async def one(connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):  # an empty connection, or the engine left
            await _serve_one(connection, worker)
            await connection.wait_closed()  # the engine closes

    quiet = logging.getLogger("cape.websockets")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False  # it would only log empty connections
    server = listen(
        one,
        host,
        port,
        max_size=wire.MAX_DOCUMENT,
        compression=None,
        ping_interval=None,  # an engine busy with a large document does not answer pings
        close_timeout=1,
        logger=quiet,
        process_request=_refused,
    )
    async with server:
        if ready is not None:
            ready.set()
        await stop.wait()
    worker.shutdown(wait=False, cancel_futures=True)


def _refused(connection: ServerConnection, request: Request) -> Response | None:
    token = os.environ.get(TOKEN_VARIABLE, "")
    given = request.headers.get("Authorization", "")
    # Constant time.
    if not token or hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
        return None
    return connection.respond(HTTPStatus.UNAUTHORIZED, "CAPE-E158 a token is asked for.\n")


def check_mounts(request: EngineRequest) -> None:
    """Raise MessageError for a folder outside the mounts."""
    named = os.environ.get(MOUNTS_VARIABLE, "")
    mounts = [os.path.realpath(text) for text in named.split(os.pathsep) if text] or MOUNTS
    for name, folder in request.folders.items():
        # Links are resolved first.
        there = os.path.join(os.path.realpath(folder), "")
        if not any(there.startswith(os.path.join(mount, "")) for mount in mounts):
            raise MessageError("E158", problem=f"{name} lies outside what is mounted")


async def _serve_one(connection: ServerConnection, worker: ThreadPoolExecutor) -> None:
    first = await connection.recv()
    try:
        call = parse_document(first)
    except MessageError as err:
        await connection.send(_failed(err))
        return
    if "command" in call:
        async for frame in _version_1(call, connection):
            await connection.send(frame)
        return
    loop = asyncio.get_running_loop()
    await connection.send(await loop.run_in_executor(worker, answer_call, call))


def answer_call(call: Mapping[str, Any]) -> str:
    """Return the frame that answers a version 2 call; never raises."""
    began = time.monotonic()
    role, document = str(call.get("mode")), call.get("data", {})
    try:
        check_mounts(EngineRequest.of(role, document))
        become_owner(role, document)
        line = play(role, document, SitePlaces.from_environment(os.environ))
        frame = b'{"type":"stdout","data":' + line + b',"end":true}'
    except BaseException as err:  # the engine would wait for ever for a missing frame
        log.info("%s failed after %.0f ms: %s", _named(role), _ms(began), public_text(err))
        return _failed(err)
    log.info("%s answered in %.0f ms", _named(role), _ms(began))
    return frame.decode("ascii")


def _named(role: str) -> str:
    return {"local": "site", "remote": "aggregator"}.get(role, "call")


def _ms(began: float) -> float:
    return 1000 * (time.monotonic() - began)


def _failed(err: BaseException) -> str:
    return _frame(type="stderr", data=public_text(err), code=1, end=True)


async def _version_1(call: Mapping[str, Any], connection: ServerConnection) -> AsyncIterator[str]:
    arguments = call.get("args")
    path = str(arguments[0]) if isinstance(arguments, list) and len(arguments) == 1 else ""
    # A caller could name any program: only our two may start.
    if call.get("command") != "python" or path not in PROGRAMS:
        yield _frame(type="error", error="CAPE-E158 this image runs no other command.")
        return
    pieces: list[bytes] = []
    size = 0
    async for piece in connection:
        raw = piece.encode() if isinstance(piece, str) else piece
        if not raw:
            break  # the end of standard input
        size += len(raw)
        if size > wire.MAX_DOCUMENT:  # the program would refuse it only after receiving all of it
            yield _frame(type="error", error="CAPE-E158 standard input is too long.")
            await connection.close()  # do not read the rest
            return
        pieces.append(raw)
    try:
        check_mounts(EngineRequest.of(PROGRAMS[path], parse_document(b"".join(pieces))))
    except MessageError as err:
        yield _frame(type="stderr", data=public_text(err), end=False)
        yield _frame(type="stderr", end=True)
        yield _frame(type="close", code=1)
        return
    began = time.monotonic()
    program = PROGRAM_FOLDER / f"{PROGRAMS[path]}.py"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, said = await process.communicate(b"".join(pieces))
    except BaseException:  # the engine left, or the service stops
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        raise
    elapsed = _ms(began)
    log.info("%s ended with %s after %.0f ms", _named(PROGRAMS[path]), process.returncode, elapsed)
    for name, stream in (("stdout", out), ("stderr", said)):
        text = stream.decode("ascii", "replace")
        for start in range(0, len(text), PIECE):
            yield _frame(type=name, data=text[start : start + PIECE], end=False)
        yield _frame(type=name, end=True)
    yield _frame(type="close", code=process.returncode)


def _frame(**fields: object) -> str:
    return wire.dumps(fields).decode("ascii")


async def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    if not os.environ.get(TOKEN_VARIABLE):
        log.info(NO_TOKEN)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _end)
    await service(asyncio.Event())  # until a signal


def _end() -> None:
    sys.stdout.flush()
    # A normal exit would wait for a running call.  Its answer is no longer wanted, and the journal
    # is consistent at every moment.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
