"""Write the files of requirements/: exact versions, and the digests of their files.

``make lock`` takes the newest versions that pyproject.toml allows; ``python packaging/lock.py``
keeps what is locked and adds or drops what pyproject.toml asks for since.  One resolution holds for
every system and for every Python that pyproject.toml allows, with markers where they differ.  A
file leaves out what the files below it hold.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[1]
FOLDER = TOP / "requirements"
# File: what it is for, the file it stands on, what of pyproject.toml it holds.
FILES: dict[str, tuple[str, str, list[str]]] = {
    "lock": (
        "What a run needs, report pages included; the image holds this and nothing more.",
        "",
        ["--extra=coinstac", "--extra=report", "--extra=matlab73", "--extra=fast"],
    ),
    "build": ("What builds the package.", "lock", ["--group=build"]),
    "dev": ("What tests, checks and benches need.", "build", ["--group=dev"]),
    "fuzz": ("Coverage-guided fuzzing of decoders and readers.", "dev", ["--group=fuzz"]),
    "site": ("The documentation site.", "dev", ["--group=site"]),
    "flare": ("Tests in NVIDIA FLARE.", "dev", ["--extra=nvflare"]),
    "release": ("What locks, and lists what is shipped.", "dev", ["--group=release"]),
    "lower": (
        "The lowest versions that pyproject.toml allows, and what tests need.",
        "",
        ["--extra=coinstac", "--extra=report", "--extra=matlab73", "--extra=fast", "--group=tests",
         "--group=bench", "--resolution=lowest-direct"],
    ),
}  # fmt: skip
ENTRY = re.compile(r"^[a-z0-9][^\n]*(?:\n {4}--hash=[^\n]*)+\n", re.MULTILINE | re.IGNORECASE)
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def main(arguments: list[str] | None = None) -> int:
    """Write all files; the exit code of the resolver if it finds no versions that fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="newest versions that are allowed")
    upgrade = parser.parse_args(arguments).upgrade
    work = TOP / "build" / "lock"
    work.mkdir(parents=True, exist_ok=True)
    for name, (purpose, below, wanted) in FILES.items():
        whole = work / f"{name}.txt"
        others = [
            path for path in FOLDER.glob("*.txt") if (path.stem == "lower") == (name == "lower")
        ]
        # The resolver keeps a version that it finds in the file it is to write.
        whole.write_text("" if upgrade else pins(*others), encoding="utf-8")
        asked = ["pyproject.toml", *wanted] if wanted[0].startswith("--extra") else wanted
        done = subprocess.run(
            [sys.executable, "-m", "uv", "pip", "compile", *asked, "--quiet", "--universal",
             "--python-version=3.11", "--generate-hashes", "--no-header", "--no-annotate",
             "--no-emit-index-url", *([f"--constraint={work / below}.txt"] if below else []),
             f"--output-file={whole}"],
            cwd=TOP, check=False,
        )  # fmt: skip
        if done.returncode:
            return done.returncode
        entries = ENTRY.findall(whole.read_text(encoding="utf-8"))
        known = set(ENTRY.findall((work / f"{below}.txt").read_text("utf-8"))) if below else set()
        always = {entry.split()[0] for entry in known if " ;" not in entry}
        own = [e for e in entries if e not in known and e.split()[0] not in always]
        (FOLDER / f"{name}.txt").write_text(
            f"# {purpose}  Versions and digests: packaging/lock.py\n"
            + (f"-r {below}.txt\n" if below else "")
            + "".join(own),
            encoding="utf-8",
        )
        if below:  # the next file stands on both
            whole.write_text("".join(sorted({*entries, *known})), encoding="utf-8")
        print(f"{name}.txt: {len(own)} packages")
    return 0


def pins(*files: Path) -> str:
    """Return the versions that files hold, a line each."""
    found = {pin for file in files for pin in PIN.findall(file.read_text(encoding="utf-8"))}
    return "".join(f"{name}=={version}\n" for name, version in sorted(found))


if __name__ == "__main__":
    raise SystemExit(main())
