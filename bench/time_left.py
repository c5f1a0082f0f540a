"""How right the time left is that `cape simulate` says, from the tenth subject on.

    python bench/time_left.py [--subjects 8] [--timepoints 60] [--set NAME=VALUE]
                              [--synth "--layout fmriprep --voxel 3"]

Makes three sites by `cape synth` (fMRIPrep's layout: four runs a person), runs the command and
notes when each line of progress comes.  What a line says is left is compared with what was left in
truth; lines of the last --floor seconds are not counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CAPE = (sys.executable, "-m", "cape")


def lines_of(command: list[str]) -> tuple[list[tuple[float, dict]], float]:
    """Return (s since the start, line) of all progress, and how long the command took."""
    began, found = time.monotonic(), []
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
    parser.add_argument("--subjects", type=int, default=8, help="at each site")
    parser.add_argument("--timepoints", type=int, default=60)
    parser.add_argument("--synth", default="--layout fmriprep --voxel 3")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--floor", type=float, default=8.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        study = str(Path(name) / "study")
        sizes = ",".join([str(given.subjects)] * 3)
        made = [*given.synth.split(), "--site-sizes", sizes, "--timepoints", str(given.timepoints)]
        subprocess.run(
            [*CAPE, "synth", study, *made, "--quiet"], check=True, stdout=subprocess.DEVNULL
        )
        if not Path(study, "settings.toml").exists():
            subprocess.run([*CAPE, "init", study], check=True, stdout=subprocess.DEVNULL)
        chosen = [word for text in given.set for word in ("--set", text)]
        command = [*CAPE, "simulate", study, "--out", str(Path(name) / "out"), "--json"]
        found, took = lines_of([*command, "--epsilon", "8", "--delta", "1e-5", *chosen])
    worst, tenth = 1.0, False
    for at, line in found:
        left, said = took - at, float(line["seconds_left"])
        tenth = tenth or line.get("done", 0) >= 10
        if not tenth or left < given.floor:
            continue
        ratio = max(said, 0.1) / left
        worst = max(worst, ratio, 1 / ratio)
        what = line.get("stage") or line["phase"]
        print(f"{what:12} after {at:6.1f} s: {said:6.1f} s said, {left:6.1f} s true, {ratio:.2f}")
    print(f"{took:.1f} s in all; worst {worst:.2f} from the tenth subject on")


if __name__ == "__main__":
    main()
