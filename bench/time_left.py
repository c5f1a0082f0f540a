"""How right the time left is that `cape simulate` says, from the tenth subject on.

    python bench/time_left.py [--subjects 10] [--volumes 150] [--mm 2] [--through memory]

Writes three sites of images, runs the command on them and notes when each line of progress comes.
What a line says is left is compared with what was left in truth; lines of the last --floor seconds
are not counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from site_memory import write_site

SITES = 3


def lines_of(study: Path, out: Path, through: str) -> tuple[list[tuple[float, dict]], float]:
    """Return (s since the start, line) of all progress, and how long the command took."""
    command = [
        *(sys.executable, "-m", "cape", "simulate", str(study), "--out", str(out), "--json"),
        *("--epsilon", "8", "--delta", "1e-5", "--through", through),
        *("--set", "mask=MNI152-4mm", "--set", "separation=spatial"),
    ]
    began = time.monotonic()
    found = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        for text in run.stdout:
            line = json.loads(text)
            if line.get("event") == "progress":
                found.append((time.monotonic() - began, line))
        assert run.stderr is not None
        errors = run.stderr.read()
    took = time.monotonic() - began
    if run.returncode:
        raise RuntimeError(errors[-800:])
    return found, took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subjects", type=int, default=10)
    parser.add_argument("--volumes", type=int, default=150)
    parser.add_argument("--mm", type=int, default=2, choices=(1, 2))
    parser.add_argument("--through", default="memory")
    parser.add_argument("--floor", type=float, default=5.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        study = Path(name) / "study"
        for k in range(SITES):
            (study / f"local{k}").mkdir(parents=True)
            write_site(study / f"local{k}", given.mm, given.volumes, given.subjects)
        found, took = lines_of(study, Path(name) / "out", given.through)
    worst, tenth = 1.0, False
    for at, line in found:
        left, said = took - at, float(line["seconds_left"])
        tenth = tenth or line.get("done", 0) >= 10
        if not tenth or left < given.floor:
            continue
        ratio = max(said, 0.1) / left
        worst = max(worst, ratio, 1 / ratio)
        what = line.get("stage") or line.get("phase")
        print(f"{what:12} after {at:6.1f} s: {said:6.1f} s said, {left:6.1f} s true, {ratio:.2f}")
    print(f"{took:.1f} s in all; worst {worst:.2f} from the tenth subject on")


if __name__ == "__main__":
    main()
