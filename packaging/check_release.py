"""Check a wheel and an sdist before anyone installs them: ``make release`` runs this.

Both are opened and compared with the checkout, and built again elsewhere to the same bytes; the
wheel is installed in an empty environment, whose bill of materials is written (CycloneDX) and where
a small consortium runs.  Anything amiss ends with exit code 1 and a line that says what was found,
what belongs there, and where to mend it.
"""

from __future__ import annotations

import argparse
import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

from pathspec import GitIgnoreSpec  # hatchling's own, so it is where anything is built

TOP = Path(__file__).parents[1]
# What the environment holds in which the wheel was tried, at the locked versions
BILL = "coinstac-cape-{version}.cdx.json"
DATA = re.compile(r"cape/(masks|report/templates|lab/engines/engine_program)/")
"""What the package reads at run time beside its modules."""
NEVER = re.compile(r"(^|/)(test|bench|out|results|\.venv|\.engine|__pycache__)/|\.pyc$")


def main(arguments: list[str] | None = None) -> int:
    """Check the two files of a folder; 0 if all is well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="holds one wheel and one sdist")
    folder = parser.parse_args(arguments).folder
    wheels, sdists = list(folder.glob("*.whl")), list(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        print(f"{folder}: {len(wheels)} wheels, {len(sdists)} sdists; empty it, run make release")
        return 1
    problems = [*problems_of_wheel(wheels[0]), *problems_of_sdist(sdists[0], wheels[0])]
    problems += problems_of_builds(wheels[0], sdists[0])
    problems += problems_installed(wheels[0])
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{wheels[0].name} and {sdists[0].name} are fit to be released")
    return 1 if problems else 0


def tracked() -> set[str]:
    """Return what git tracks below ``cape/``: what a wheel must hold, and nothing else."""
    listing = subprocess.run(
        ["git", "ls-files", "cape"], cwd=TOP, capture_output=True, text=True, check=True
    )
    return set(listing.stdout.splitlines())


def problems_of_wheel(wheel: Path) -> list[str]:
    """Compare a wheel with the checkout, and its metadata with the version of the code."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        info = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(info))
    ours = {name for name in names if ".dist-info/" not in name}
    version = re.search(
        r'^VERSION = "(.+)"$', (TOP / "cape/settings/config.py").read_text(), re.MULTILINE
    )
    problems = [f"{wheel.name}: lacks {name}" for name in sorted(tracked() - ours)]
    problems += [f"{wheel.name}: holds {name}, not in git" for name in sorted(ours - tracked())]
    if not any(DATA.match(name) for name in ours):
        problems.append(f"{wheel.name}: no masks, templates or engine program; see pyproject.toml")
    if version is None or metadata["Version"] != version[1]:
        problems.append(
            f"{wheel.name}: version {metadata['Version']} is not that of cape.settings.config"
        )
    for field in ("Summary", "Requires-Python", "License-Expression"):
        if not metadata[field]:
            problems.append(f"{wheel.name}: no {field}; see [project] in pyproject.toml")
    return problems


def problems_of_sdist(sdist: Path, wheel: Path) -> list[str]:
    """Look into an sdist, and build the wheel again from nothing but it."""
    with tarfile.open(sdist) as archive, tempfile.TemporaryDirectory() as place:
        inner = [name.partition("/")[2] for name in archive.getnames()]
        # Tests, benches and inputs of forms are welcome; what a run or a build leaves is not.
        left = [
            n
            for n in inner
            if NEVER.search(n) and not n.startswith(("test/", "bench/", "compspecs/"))
        ]
        problems = [f"{sdist.name}: holds {name}" for name in left]
        archive.extractall(place, filter="data")
        root = next(Path(place).iterdir())
        built = Path(place) / "again"
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)],
            cwd=root,
            check=True,
            capture_output=True,
        )
        again = next(built.glob("*.whl"))
        if again.read_bytes() != wheel.read_bytes():
            problems.append(f"{sdist.name}: builds another wheel than {wheel.name}")
    return problems


def problems_of_builds(wheel: Path, sdist: Path) -> list[str]:
    """Build both again from a copy: other place, rights, times, time zone and hash seed."""
    with tempfile.TemporaryDirectory() as place:
        built = build_copy(Path(place) / "elsewhere", rights=0o700, time=1e9, zone="Asia/Tokyo")
        return [
            f"{made.name}: other bytes when it is built elsewhere"
            for made in (wheel, sdist)
            if (built / made.name).read_bytes() != made.read_bytes()
        ]


def build_copy(copy: Path, *, rights: int, time: float, zone: str) -> Path:
    """Build wheel and sdist from a copy of the checkout; returns their folder."""
    for name in files_to_copy():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TOP / name, copy / name)
        # As a clone has them that was made with another umask
        (copy / name).chmod((TOP / name).stat().st_mode & rights)
        os.utime(copy / name, (time, time))
    environment = {k: v for k, v in os.environ.items() if k != "SOURCE_DATE_EPOCH"}
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel"],
        cwd=copy, check=True, capture_output=True, umask=0o777 & ~rights,
        env=environment | {"TZ": zone, "PYTHONHASHSEED": str(rights)},
    )  # fmt: skip
    return copy / "dist"


def files_to_copy() -> list[str]:
    """Return what .gitignore does not name; git itself is not asked: an archive has none."""
    lines = (TOP / ".gitignore").read_text(encoding="utf-8").splitlines()
    ignored = GitIgnoreSpec.from_lines([*lines, ".git"])
    found = []
    for folder, below, files in os.walk(TOP):
        here = Path(folder).relative_to(TOP)
        # An environment has thousands of files: what is ignored is not looked into.
        below[:] = [
            name for name in below if not ignored.match_file(f"{(here / name).as_posix()}/")
        ]
        found += [(here / name).as_posix() for name in files]
    return sorted(name for name in found if not ignored.match_file(name))


def problems_of_bill(bill: Path) -> list[str]:
    """Compare a bill of materials with the locked versions."""
    document = json.loads(bill.read_text(encoding="utf-8"))
    listed = {part["name"].lower().replace("_", "-"): part for part in document["components"]}
    lock = (TOP / "requirements/lock.txt").read_text(encoding="utf-8")
    problems = []
    for name, version, marker in re.findall(r"^([\w-]+)==(\S+)( ;)?", lock, re.MULTILINE):
        found = listed.get(name, {}).get("version")
        if found != version and not (found is None and marker):
            problems.append(f"{bill.name}: {name} is {found}, locked is {version}")
    problems += [
        f"{bill.name}: {name} has no licence"
        for name, part in listed.items()
        if not part.get("licenses") and name not in ("pip", "setuptools")
    ]
    return problems


def problems_installed(wheel: Path) -> list[str]:
    """Install a wheel with the locked versions where nothing else is, and run a consortium."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        venv.create(home / "venv", with_pip=True)
        programs = home / "venv/bin"
        pip = [programs / "python", "-m", "pip"]
        bill = wheel.resolve().with_name(BILL.format(version=wheel.name.split("-")[1]))
        quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
        steps = [
            [*pip, "install", *quiet, "--require-hashes", "-r", TOP / "requirements/lock.txt"],
            [*pip, "install", *quiet, "--no-deps", wheel.resolve()],
            [*pip, "check", "--disable-pip-version-check"],
            [sys.executable, "-m", "cyclonedx_py", "environment", programs / "python",
             "--pyproject", TOP / "pyproject.toml", "--mc-type", "application",
             "--output-reproducible", "--gather-license-texts", "--of", "JSON", "-o", bill],
            [programs / "cape", "--version"],
            [programs / "cape", "synth", "study", "--preset", "brain", "--subjects", "12",
             "--seed", "1", "--quiet"],
            [programs / "cape", "simulate", "study", "--out", "out", "--seed", "1", "--set",
             "private=false", "--quiet"],
        ]  # fmt: skip
        # What is tried is the wheel: make release names its clone, for what is built from it.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        for step in steps:
            done = subprocess.run(
                [str(part) for part in step],
                cwd=home, env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode != 0:
                said = (done.stderr or done.stdout).strip().splitlines()
                return [f"installed: {' '.join(map(str, step[1:4]))}: {said[-1] if said else ''}"]
        page = home / "out/consortium/index.html"
        if not page.is_file():
            return [f"installed: a run wrote no {page.name}"]
    return problems_of_bill(bill)


if __name__ == "__main__":
    raise SystemExit(main())
