"""Install the wheel in every Python that is here and use it: ``make test-install``.

Each gets an empty environment and an empty folder: ``pip install`` of the wheel as README says it,
then a study is made, checked and run, one process per site and round, its run is repeated, one of
its sites is run alone, and a type checker reads ``import cape``.  Prints a line per Python;
exit code 1 if one of them fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).parents[1]
NEWEST = ("python3.14", "python3.13", "python3.12", "python3.11")
TYPED = """import cape
usable: bool = cape.budget(subjects=400, sites=4, epsilon=2.0).usable
"""


def main(names: list[str]) -> int:
    """Try each Python by name or path; all that are found, if none is named."""
    pythons = [name for name in names or NEWEST if names or works(name)]
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", place],
            cwd=TOP, check=True, capture_output=True,
        )  # fmt: skip
        (wheel,) = Path(place).glob("*.whl")
        for i, python in enumerate(pythons):
            began = time.monotonic()
            trouble = tried(python, wheel, Path(place) / f"home{i}")
            failed += bool(trouble)
            print(f"{python}: {trouble or 'ok'} ({time.monotonic() - began:.0f} s)", flush=True)
    return 1 if failed or not pythons else 0


def works(name: str) -> bool:
    """Tell whether a Python starts: some names are only the promise of one."""
    if shutil.which(name) is None:
        return False
    return subprocess.run([name, "-c", ""], capture_output=True, check=False).returncode == 0


def tried(python: str, wheel: Path, home: Path) -> str:
    """Return what went wrong, or nothing."""
    home.mkdir()
    programs = home / "venv" / "bin"
    (home / "typed.py").write_text(TYPED, encoding="utf-8")
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    cape = programs / "cape"
    steps = [
        [python, "-m", "venv", home / "venv"],
        [programs / "python", "-m", "pip", "install", *quiet, wheel],
        [programs / "python", "-m", "pip", "check", "--disable-pip-version-check"],
        [cape, "synth", "study", "--site-sizes", "4,4,4", "--timepoints", "40", "--networks", "2",
         "--seed", "1", "--quiet"],
        [cape, "validate", "study"],
        [cape, "simulate", "study", "--through", "process", "--out", "out", "--set",
         "private=false", "--set", "n_rounds=1", "--quiet"],
        [cape, "rerun", "out", "--out", "again", "--quiet"],
        [cape, "simulate", "study/local0", "--out", "lab", "--set", "private=false",
         *("--set", "n_components=2", "--set", "min_timepoints=30", "--quiet"),
         *("--set", "n_rounds=1")],
        [cape, "compspec", "--image", "example.org/coinstac-x", "--out", "forms"],
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", programs / "python",
         "--cache-dir", home / "types", "typed.py"],
    ]  # fmt: skip
    # What is tried is the wheel, not this folder.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    for step in steps:
        done = subprocess.run(
            [str(part) for part in step],
            cwd=home, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            said = (done.stdout + done.stderr).strip().splitlines() or [""]
            return f"{' '.join(map(str, step[1:4]))}: {said[-1]}"
    page = home / "out/consortium/index.html"
    return "" if page.is_file() else f"a run wrote no {page.name}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
