"""Runs by a user with no rights but those on its own folders, as hospitals and engines start them.

Root may write anywhere, so what is tested as root says nothing of permissions.  These tests need
root to become somebody else, and an interpreter that others may start; else they are skipped.
"""

import functools
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support import consortium as helper

ROOT = Path(__file__).parents[2]
NOBODY = 65534
BECOME = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
SEED = "7"

pytestmark = pytest.mark.trust


class Somebody:
    """A user without rights, with a copy of the package and a consortium that may be read."""

    def __init__(self, top: Path) -> None:
        self.top = top
        for name in ("cape", "local.py", "remote.py"):
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, top / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, top / name)
        hidden = helper.no_pictures(top / "hidden")
        self.data = helper.write_data(top / "data")
        chosen = helper.settings_of("capedjica")
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in chosen.items()]
        (self.data / "settings.toml").write_text("".join(lines))
        own = top / "own"
        own.mkdir()
        os.chown(own, NOBODY, NOBODY)
        for path in (top, *top.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        libraries = [p for p in sys.path if p.endswith("-packages")]
        self.environment = {
            "PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(hidden), str(top), *libraries]),
        }  # fmt: skip

    @functools.cached_property
    def python(self) -> str:
        """An interpreter of this version that this user may start, with our libraries."""
        if os.geteuid() != 0 or shutil.which(BECOME[0]) is None:
            pytest.skip("only root can become somebody else, with setpriv")
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        others = [shutil.which(version, path="/usr/local/bin:/usr/bin")]
        probe = (
            "import os, sys, numpy, cryptography, typer, cape;"
            "sys.exit(not os.access(sys.executable, os.X_OK))"  # it starts itself for every round
        )
        for found in (sys.executable, *filter(None, others)):
            if self.run(found, "-c", probe).returncode == 0:
                return found
        pytest.skip(f"no {version} here that another user may start with these libraries")

    def run(self, *command: str, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*BECOME, *command], env=self.environment, cwd=self.top, input=text,
            capture_output=True, check=False, timeout=300,
        )  # fmt: skip

    def simulate(self, out: Path, *more: str) -> subprocess.CompletedProcess[bytes]:
        command = ("-m", "cape", "simulate", str(self.data), "--out", str(out), "--seed", SEED)
        return self.run(self.python, *command, *more)


@pytest.fixture
def somebody() -> Iterator[Somebody]:
    top = Path(tempfile.mkdtemp())  # not below pytest's own, which is root's alone
    try:
        yield Somebody(top)
    finally:
        shutil.rmtree(top)


def test_a_run_of_somebody_without_rights_is_the_same_run(somebody, tmp_path) -> None:
    """One process per party and round; every file is the user's, and nobody else may write it."""
    out = somebody.top / "own" / "results"
    done = somebody.simulate(out, "--through", "process")
    assert done.returncode == 0, done.stderr
    found = list(out.rglob("*"))
    assert {path.stat().st_uid for path in found} == {NOBODY}
    assert not [path for path in found if stat.S_IMODE(path.stat().st_mode) & 0o022]
    from support.simulation import simulate

    with helper.without_pages():
        alone = simulate(somebody.data, out=tmp_path / "alone", seed=int(SEED))
    name = "privacy.json"
    assert (out / "consortium" / name).read_bytes() == (alone / name).read_bytes()
    # Archives are not compared: another interpreter may pack the same arrays in another way.
    one, other = (np.load(place / "unmixing.npz") for place in (out / "consortium", alone))
    assert {key: one[key].tobytes() for key in one} == {k: other[k].tobytes() for k in other}


def test_a_folder_that_may_not_be_written_is_named_to_who_chose_it(somebody) -> None:
    done = somebody.simulate(somebody.top / "results")
    assert done.returncode == 2
    said = done.stderr.decode()
    assert "CAPE-E016 the command cannot go on: the folder cannot be made; choose an" in said
    assert f"change the rights, or the user ({somebody.top / 'results'}" in said
    assert "Traceback" not in said
    assert not (somebody.top / "results").exists()


def test_who_cannot_be_read_for_want_of_rights_counts_as_zeros_and_the_site_is_told(
    somebody,
) -> None:
    """Whether one person's file may be read is content, too: nothing else may follow from it."""
    path = sorted((somebody.data / "local1").glob("*.npy"))[0]
    path.chmod(0o600)
    out = somebody.top / "own" / "results"
    done = somebody.simulate(out)
    assert done.returncode == 0, done.stderr
    told = (out / "local1" / "private" / "checks.tsv").read_text()
    assert "CAPE-W101" in told
    assert path.name in told
    assert path.stem not in (done.stderr + done.stdout).decode()
    shared = [file for file in (out / "consortium").rglob("*") if file.is_file()]
    assert {"components.tsv", "privacy.json", "unmixing.npz"} <= {file.name for file in shared}
    assert not [file for file in shared if path.stem.encode() in file.read_bytes()]
