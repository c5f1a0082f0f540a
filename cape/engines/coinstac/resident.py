"""A process that starts the rounds of ``local.py`` and ``remote.py``; off unless asked for.

``python -m cape.engines.coinstac.resident FOLDER`` has imported everything, and forks a process
for every call of a caller whose ``CAPE_RESIDENT`` names FOLDER: a call leaves nothing for the next.
The fork takes the caller's streams, environment, folder and umask, and then does what ``local.py``
does, so answers and errors are the same bytes.  What a fork cannot take over (the program, its
libraries and their threads, user, namespaces, limits) must be equal, or the call is turned down
before its input is read, and the caller goes on by itself.  Linux only.

A call: the caller sends what it is; READY comes back, or the end of the connection; the caller says
READ, and hands over its three streams; the exit code comes.  The socket is for one user (0600 in a
folder 0700), and both ends ask the kernel who the other one is.
"""

# The caller imports this module alone: whatever it imports, every round pays for.
from __future__ import annotations

import os
import socket
import stat
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

VARIABLE = "CAPE_RESIDENT"
NAME = "cape.sock"
READY, READ = b"\x01", b"\x02"
# Variables that are read when Python, numpy or the C library start, by how their names begin
EARLY = (
    b"PYTHON", b"OPENBLAS", b"GOTO", b"OMP_", b"GOMP_", b"KMP_", b"MKL_", b"BLIS_", b"VECLIB_",
    b"NPY_", b"NUMPY_", b"LD_", b"GLIBC_", b"MALLOC_", b"LC_", b"LANG", b"OPENSSL_", b"SSL_",
)  # fmt: skip
# Of a call; environments are smaller (Linux: a quarter of the stack)
LARGEST = 8 * 2**20
PATIENCE = 10.0  # seconds for the other end to say what it has ready


def _facts() -> list[bytes]:
    """Return what must be equal at both ends, since a fork cannot change it."""
    import resource

    limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    root = os.stat("/")
    spaces = [os.readlink(f"/proc/self/ns/{name}") for name in ("mnt", "pid", "user", "net")]
    facts = (
        os.path.realpath(__file__), sys.version, sys.prefix, str(sys.flags),
        str(os.getresuid() + os.getresgid()), str(sorted(os.getgroups())),
        str(spaces), str((root.st_dev, root.st_ino)),
        str([resource.getrlimit(getattr(resource, name)) for name in limits]),
        str(sorted(os.sched_getaffinity(0))),
    )  # fmt: skip
    early = sorted(pair for pair in os.environb.items() if pair[0].startswith(EARLY))
    return [fact.encode() for fact in facts] + [key + b"=" + value for key, value in early]


def _ours(path: str, kind: Callable[[int], bool]) -> bool:
    """Whether this is no link, of that kind, this user's, and closed to all others."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return kind(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o77


def _same_user(connection: socket.socket) -> bool:
    size = struct.calcsize("3i")
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid, uid, _ = struct.unpack("3i", peer)
    return bool(uid == os.geteuid() and pid > 0)  # 0: of a namespace that cannot be seen from here


def _packed(parts: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def _unpacked(raw: bytes) -> list[bytes]:
    parts, at = [], 0
    while at < len(raw):
        (size,) = struct.unpack_from("<I", raw, at)
        parts.append(raw[at + 4 : at + 4 + size])
        at += 4 + size
    return parts


# -- the caller ------------------------------------------------------------------------------------


def ask(role: str) -> int | None:
    """Let the resident process answer what is on stdin; its exit code, or None if it does not."""
    folder = os.environ.get(VARIABLE, "")
    path = os.path.join(folder, NAME)
    if not (folder and _ours(folder, stat.S_ISDIR) and _ours(path, stat.S_ISSOCK)):
        return None
    try:
        connection = _agreed(role, path)
    except (OSError, AttributeError):  # no such system, gone, or deaf: nothing was read yet
        return None
    if connection is None:
        return None
    # From here on the input is being read: what happens now has happened to this round.
    with connection:
        try:
            code = connection.recv(1)
        except OSError:  # a fork that was ended before it read a word
            code = b""
    return code[0] if code else 1


def _agreed(role: str, path: str) -> socket.socket | None:
    """Return a connection whose other end now reads stdin; None or OSError if it does not."""
    mask = os.umask(0o77)
    os.umask(mask)
    environment = [key + b"=" + value for key, value in os.environb.items()]
    own = [role.encode(), os.getcwdb(), str(mask).encode(), _packed(_facts())]
    call = _packed([*own, _packed(environment)])
    connection = socket.socket(socket.AF_UNIX)
    agreed = False
    try:
        connection.settimeout(PATIENCE)
        connection.connect(path)
        if not _same_user(connection):
            return None
        connection.sendall(struct.pack("<I", len(call)) + call)
        if connection.recv(1) != READY:
            return None
        # The last word is the caller's: a fork that was too slow finds nobody, and reads nothing.
        # With it go the streams: one that nobody takes would stay open for ever.
        socket.send_fds(connection, [READ], [0, 1, 2])
        connection.settimeout(None)
        agreed = True
        return connection
    finally:
        if not agreed:
            connection.close()


# -- the resident process --------------------------------------------------------------------------


def _on_disk() -> set[tuple[str, int, int]]:
    """Every file of the program, and of what is loaded, as it lies on disk."""
    top = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    paths = {os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names}
    loaded = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    found = set()
    for path in paths | loaded:
        # Bytecode is made and looked at by whoever imports: it says nothing of its own.
        if path and not path.endswith(".pyc"):
            one = os.stat(path)
            found.add((path, one.st_size, one.st_mtime_ns))
    return found


def _answer(
    connection: socket.socket, facts: list[bytes], program: set[tuple[str, int, int]]
) -> None:
    """Answer one call, in a process of its own; return without a word what is turned down."""
    connection.settimeout(PATIENCE)
    if not _same_user(connection):
        return
    with connection.makefile("rb") as reader:
        (size,) = struct.unpack("<I", reader.read(4))
        call = reader.read(min(size, LARGEST))
    role, folder, mask, theirs, environment = _unpacked(call)
    if _unpacked(theirs) != facts or role not in (b"local", b"remote"):
        return
    if _on_disk() != program:  # it was replaced: its caller has the new one
        return
    os.chdir(folder)
    os.umask(int(mask))
    os.environb.clear()
    for entry in _unpacked(environment):
        key, _, value = entry.partition(b"=")
        os.environb[key] = value
    import time

    time.tzset()
    connection.sendall(READY)
    word, streams, _, _ = socket.recv_fds(connection, 1, 3)
    if word != READ or len(streams) != 3:
        return
    for handle, stream in enumerate(streams):
        os.dup2(stream, handle)
        os.close(stream)
    sys.stdin = open(0, closefd=False)
    connection.settimeout(None)
    _end_with(connection)
    from cape.engines.coinstac.computation import answer_once

    connection.sendall(bytes([answer_once(role.decode())]))


def _end_with(connection: socket.socket) -> None:
    """End this process as soon as its caller is gone, as ``local.py`` ends when it is killed."""
    import threading

    def watch() -> None:
        connection.recv(1)  # the caller says no more: it is gone
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def serve(folder: str) -> NoReturn:
    """Answer calls until this process is ended."""
    import gc
    import signal

    if not hasattr(socket, "SO_PEERCRED") or not os.path.isdir("/proc/self/ns"):
        raise SystemExit("python -m cape.engines.coinstac.resident works on Linux only.")
    facts = _facts()  # as at the start: what is set later is no fact of this process
    # All that rounds import, before the first fork.
    from cape.computations import load
    from cape.settings.config import PRODUCT

    load(PRODUCT)
    program = _on_disk()
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if not _ours(folder, stat.S_ISDIR):
        raise SystemExit(f"{folder}: a folder of your own with mode 0700 is needed, and no link.")
    path = os.path.join(folder, NAME)
    if os.path.lexists(path) and _ours(path, stat.S_ISSOCK):
        os.unlink(path)  # of a process that has ended, or is replaced by this one
    listener = socket.socket(socket.AF_UNIX)
    os.umask(0o177)
    listener.bind(path)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a fork
    gc.freeze()
    sys.stdout.write(f"ready: {path}\n")
    sys.stdout.flush()
    while True:
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        listener.close()
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        try:
            _answer(connection, facts, program)
        finally:  # whatever happened: this process is not the one that listens
            os._exit(0)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("python -m cape.engines.coinstac.resident FOLDER")
    serve(sys.argv[1])
