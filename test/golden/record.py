"""Record all plays, or some, into runs.json:  python test/golden/record.py [NAME ...]

``--keep FOLDER`` writes files and messages there instead, and leaves runs.json alone: do it before
and after a change, and ``diff -r`` the two folders.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from golden import digests, player  # noqa: E402 - found by the line above
from golden.scenarios import PLAYS  # noqa: E402

RUNS = HERE / "runs.json"


def record_play(name: str, scratch: Path, keep: Path | None) -> dict[str, Any]:
    """Play in every way of `name` and return the one record; RuntimeError if two ways differ."""
    first: dict[str, Any] = {}
    for through in PLAYS[name].through:
        folder, began = scratch / name / through, time.monotonic()
        now = player.play(name, through, folder)
        seconds = time.monotonic() - began
        sys.stdout.write(f"{name} through {through}: {len(now['messages'])} messages, "
                         f"{len(now['files'])} files, {seconds:.1f} s\n")  # fmt: skip
        sys.stdout.flush()
        first = first or now
        told = digests.differences(first, {**now, "by process": {}}, player.reader(name, folder))
        if told:
            raise RuntimeError(f"{name}: {through} differs from {PLAYS[name].through[0]}: {told}")
        first["by process"] |= now["by process"]
        if keep is not None:
            _keep(folder, keep / name / through)
        shutil.rmtree(folder)
    return first


def _keep(folder: Path, to: Path) -> None:
    """Copy what is digested, as it is digested."""
    for top in (folder / "play", folder / "kept"):
        for path in sorted(top.rglob("*")):
            if path.is_file():
                target = to / top.name / path.relative_to(top)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(digests.normal(path.name, path.read_bytes()))


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *PLAYS], metavar="NAME")
    parser.add_argument("--keep", type=Path, help="folder for files and messages")
    parser.add_argument("--to", type=Path, default=RUNS, help="the file to write")
    parser.add_argument("--jobs", type=int, default=2, help="plays side by side")
    given = parser.parse_args()
    names = given.names or list(PLAYS)
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(given.jobs) as pool:
        asked = [(n, pool.submit(record_play, n, Path(scratch), given.keep)) for n in names]
        failed = [str(error) for _, future in asked if (error := future.exception())]
        if failed:
            sys.exit("\n".join(["nothing was written:", *failed]))
        made = {name: future.result() for name, future in asked}
    if given.keep is not None:
        return
    (environment, *others) = [record.pop("made_with") for record in made.values()]
    before: dict[str, Any] = {"made_with": environment, "plays": {}}
    if given.names and given.to.is_file():
        before = json.loads(given.to.read_text(encoding="utf-8"))
    if any(other != environment for other in [*others, before["made_with"]]):
        sys.exit("nothing was written: the other plays were recorded in another environment")
    plays = {**before["plays"], **made}
    document = {"made_with": environment, "plays": {n: plays[n] for n in PLAYS if n in plays}}
    given.to.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
