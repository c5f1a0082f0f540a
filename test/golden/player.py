"""Plays one of `golden.scenarios` in a process of its own, with pinned what bits hang on.

    python -m golden.player NAME THROUGH FOLDER

leaves ``record.json`` in the folder, and in ``kept`` what commands printed and every message.
"""

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from golden import adapter, digests
from golden.scenarios import PLAYS

ROOT = Path(__file__).parents[2]
LIBRARIES = ("numpy", "scipy", "matplotlib", "nibabel", "nilearn", "pillow", "jinja2", "rich",
             "typer", "simplejson", "scikit-learn")  # fmt: skip
PINNED = {
    "SOURCE_DATE_EPOCH": "0",
    "OPENBLAS_CORETYPE": "Haswell",  # the kernels of every x86-64 machine of the last ten years
    "OPENBLAS_NUM_THREADS": "1",
    "CAPE_JOBS": "1",  # what is printed of memory follows it
    "CAPE_CACHE": "none",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "MPLBACKEND": "Agg",
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
    "COLUMNS": "100",
    "TERM": "dumb",
}
"""Not inherited: nothing else of this machine's environment but where programs and scratch are."""
INHERITED = ("PATH", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


def play(name: str, through: str, folder: Path) -> dict[str, Any]:
    """Play in a new process, in an empty folder, and return the record.

    RuntimeError with its standard error if the process failed.
    """
    for place in ("home", "play", "kept", "hidden"):
        (folder / place).mkdir(parents=True)
    modules = [str(ROOT), str(ROOT / "test")]
    if not PLAYS[name].pictures:
        text = "raise ImportError('left out by test/golden')"
        (folder / "hidden" / "matplotlib.py").write_text(text, encoding="ascii")
        modules.insert(0, str(folder / "hidden"))
    done = subprocess.run(
        [sys.executable, "-m", "golden.player", name, through, str(folder)],
        env={**environment(folder), "PYTHONPATH": os.pathsep.join(modules)},
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{name} through {through}: {done.stderr.decode(errors='replace')}")
    record: dict[str, Any] = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    return record


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a play."""
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    wide = {"NPY_DISABLE_CPU_FEATURES": " ".join(_wide_features())}
    return {**kept, **PINNED, **wide, "HOME": str(folder / "home")}


def _wide_features() -> list[str]:
    """Return what numpy calls its code paths above AVX2, which not every machine has."""
    import numpy as np

    known = np.show_config(mode="dicts")["SIMD Extensions"]
    names = [*known.get("found", ()), *known.get("not found", ())]
    return [name for name in names if name.startswith(("AVX512", "X86_V4"))]


def made_with() -> dict[str, str]:
    """Return what bits hang on beside the code."""
    import zlib

    import numpy as np
    from threadpoolctl import threadpool_info

    np.linalg.norm(np.eye(3))
    # A reader's own threads may stand before those of the linear algebra.
    kernels = {
        str(pool["architecture"]) for pool in threadpool_info() if pool["user_api"] == "blas"
    }
    return {
        "machine": f"{platform.system()} {platform.machine()}",
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "libc": " ".join(platform.libc_ver()),
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
        "blas kernels": " ".join(sorted(kernels)),
        **{name: version(name) for name in LIBRARIES},
    }


def main(name: str, through: str, folder: Path) -> None:
    """Play here and write the record."""
    place, kept = folder / "play", folder / "kept"
    os.chdir(place)
    if adapter.imported_from() != ROOT:
        raise RuntimeError(f"this is not the cape of {ROOT}")
    heard: list[adapter.Heard] = []
    printed: dict[str, str] = {}
    with adapter.listening(heard):
        for k, step in enumerate(PLAYS[name].steps, 1):
            title = f"{k:02d} {step}"
            text = digests.printed(_step(step.format(through=through), place), place)
            if text and not text.startswith("exit 0") and not PLAYS[name].may_fail:
                raise RuntimeError(f"{step}: {text}")
            (kept / f"printed-{k:02d}.txt").write_text(text, encoding="utf-8")
            printed[title] = digests.entry("printed.txt", text.encode())
    record = {
        "made_with": made_with(),
        "data": _data(place, kept, each=PLAYS[name].list_data),
        **_messages(heard, kept),
        "files": {
            path: digests.entry(path, (place / path).read_bytes())
            for path in _files(place)
            if not path.startswith("data")
        },
        "printed": printed,
    }
    (folder / "record.json").write_text(json.dumps(record, indent=1), encoding="utf-8")


def _step(step: str, place: Path) -> str:
    """Make one step; returns what it printed and how it ended."""
    head, *rest = shlex.split(step)
    if head.startswith("@"):
        target = place / rest[0]
        target.mkdir(exist_ok=True)
        getattr(adapter, head[1:])(target)
        return ""
    (place / "out").mkdir(exist_ok=True)
    with _printed_to(place.parent / "stdout", 1), _printed_to(place.parent / "stderr", 2):
        code = adapter.command([head, *rest])
    said = [(place.parent / name).read_text(encoding="utf-8") for name in ("stdout", "stderr")]
    return "\n".join([f"exit {code}", *(text for text in said if text)])


@contextmanager
def _printed_to(path: Path, number: int) -> Iterator[None]:
    """Send a file descriptor of this process to a file."""
    stream = sys.stdout if number == 1 else sys.stderr
    stream.flush()
    before = os.dup(number)
    with path.open("wb") as file:
        os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        stream.flush()
        os.dup2(before, number)
        os.close(before)


def _files(place: Path) -> list[str]:
    return sorted(path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())


def _data(place: Path, kept: Path, *, each: bool) -> dict[str, str]:
    """Return digests of generated data: of each file, or of a list of each folder's files."""
    found = [path for path in _files(place) if path.startswith("data")]
    if each:
        return {path: digests.entry(path, (place / path).read_bytes()) for path in found}
    record = {}
    for top in dict.fromkeys(path.partition("/")[0] for path in found):
        own = [path for path in found if path.startswith(f"{top}/")]
        lines = [f"{path} {digests.sha((place / path).read_bytes())}\n" for path in own]
        (kept / f"{top}.txt").write_text("".join(lines), encoding="utf-8")
        record[top] = digests.entry("list.txt", "".join(lines).encode())
    return record


def _messages(heard: list[adapter.Heard], kept: Path) -> dict[str, Any]:
    """Return digests of all messages under names that say exchange, phase, round and party."""
    found: dict[str, str] = {}
    by_process: dict[str, str] = {}
    exchange, phase = 1, "?"
    for message in heard:
        if message.party not in SENDERS:
            phase = _phase(message)
        name = f"{exchange:03d} {phase}, {SENDERS.get(message.party, f'reply of {message.party}')}"
        (kept / f"{name}.json").write_bytes(message.content)
        place = by_process if message.party == "engine" else found
        place[name] = digests.message(message.content)
        if message.files:
            by_process[f"{name}, files"] = " ".join(message.files)
        exchange += message.party in SENDERS
    return {"messages": found, "by process": by_process}


SENDERS = {"broadcast": "broadcast", "engine": "answer to the engine"}


def _phase(message: adapter.Heard) -> str:
    document = message.document
    return f"{document.get('phase')} round {document.get('round')}"


def reader(name: str, folder: Path) -> digests.Reader:
    """Return how to read what a play left, by the names of its record."""
    titles = [f"{k:02d} {step}" for k, step in enumerate(PLAYS[name].steps, 1)]

    def read(what: str) -> bytes:
        if what in titles:
            return (folder / "kept" / f"printed-{titles.index(what) + 1:02d}.txt").read_bytes()
        for path in (folder / "play" / what, folder / "kept" / f"{what}.json",
                     folder / "kept" / f"{what}.txt"):  # fmt: skip
            if path.is_file():
                return path.read_bytes()
        return b""

    return read


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
