"""Nothing that only POSIX has is needed to import `cape`, to plan, to check data, to simulate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "support" / "without_posix.py"
SYNTH = "synth study --preset paper --site-sizes 3,3,3 --timepoints 30 --networks 2 --quiet"
SIMULATE = (
    "simulate study --epsilon 8 --delta 1e-5 --set n_rounds=1 --set n_components=2"
    " --set accept_low_quality=true --quiet"
)


def cape(folder: Path, *commands: str) -> str:
    """Run commands where Windows' parts are missing, and text without an encoding is an error."""
    words = " + ".join(commands).split()
    done = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", str(PROGRAM), *words],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_planning_checking_and_simulating_need_no_posix(tmp_path: Path) -> None:
    said = cape(
        tmp_path,
        "budget --subjects 400 --sites 3 --epsilon 2 --delta 1e-5",
        SYNTH,
        "validate study",
        f"{SIMULATE} --out out --through memory",
    )
    assert "Will it work?" in said
    assert "READY: 9 subjects" in said
    assert (tmp_path / "out/consortium/index.html").is_file()


@pytest.mark.slow
def test_files_and_locks_of_a_site_need_no_posix(tmp_path: Path) -> None:
    cape(tmp_path, SYNTH, f"{SIMULATE} --out out --through wire")
    assert (tmp_path / "out/consortium/index.html").is_file()
