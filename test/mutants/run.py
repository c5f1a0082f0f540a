"""Apply every mistake of `mutants.toml` to a copy of the project and run the test that must see it.

``python test/mutants/run.py``           all of them; exit code 1 if one survives
``python test/mutants/run.py WORD ...``  those whose name or file holds a word
``python test/mutants/run.py --keep FILE``  write each verdict down as it comes, and go on from what
                                         FILE says of the very same files

A mutant counts as caught only if its test ran and failed.  The run fails as well if a replacement
does not apply exactly once, or if a named test does not pass on the unchanged copy.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(
    ".git",
    ".venv*",
    ".engine",
    "out",
    "results",
    "build",
    "dist",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
)
MOST_COPIES = 8
LIMIT = 300
"""Seconds that one named test may take."""
PASSED, FAILED = 0, 1
"""Exit codes of pytest; every other one says that the test did not run."""


@dataclass(frozen=True)
class Mutant:
    """One mistake: what is wrong, and the test that fails then and passes otherwise."""

    name: str  # what is wrong, as a phrase
    file: str  # where, below the project
    old: str  # what stands there, exactly once
    new: str  # what stands there instead
    test: str

    @property
    def area(self) -> str:
        """Part of the package that is changed."""
        parts = self.file.removesuffix(".py").split("/")[1:]
        return parts[0] if len(parts) > 1 else "top level"


TABLE = tomllib.loads(Path(__file__).with_name("mutants.toml").read_text(encoding="utf-8"))
MUTANTS = tuple(Mutant(**row) for row in TABLE["mutant"])


def run_tests(copy: Path, *tests: str, first_only: bool) -> int:
    """Return the exit code of pytest for these tests of a copy; -1 if it took too long."""
    environment = {
        **os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not trust"]
    command += ["-x"] if first_only else ["-n", "auto"]
    limit = LIMIT if first_only else LIMIT * 10
    try:
        done = subprocess.run(
            [*command, *tests], cwd=copy, env=environment, capture_output=True, timeout=limit,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return -1
    if done.returncode not in (PASSED, FAILED) or (done.returncode and not first_only):
        sys.stdout.write(done.stdout.decode("utf-8", "replace")[-3000:])
    return done.returncode


def applied(mutant: Mutant, root: Path) -> str | None:
    """Return the changed text of the file, None if the replacement does not apply once."""
    text = (root / mutant.file).read_text(encoding="utf-8")
    if text.count(mutant.old) != 1 or mutant.old == mutant.new:
        return None
    return text.replace(mutant.old, mutant.new)


def verdict(mutant: Mutant, copy: Path) -> str:
    """Return "caught", or what went wrong."""
    changed = applied(mutant, copy)
    if changed is None:
        return "DOES NOT APPLY"
    path = copy / mutant.file
    original = path.read_text(encoding="utf-8")
    path.write_text(changed, encoding="utf-8")
    try:
        code = run_tests(copy, mutant.test, first_only=True)
    finally:
        path.write_text(original, encoding="utf-8")
    return {FAILED: "caught", PASSED: "SURVIVED", -1: "NO END"}.get(code, f"NOT RUN ({code})")


def state_of(top: Path) -> str:
    """Return a digest of all that a verdict depends on: one of another state is not believed."""
    found = hashlib.sha256()
    for path in sorted((*top.rglob("*.py"), *top.rglob("*.toml"))):
        found.update(f"{path.relative_to(top)} ".encode() + path.read_bytes())
    return found.hexdigest()


def main(words: list[str], keep: Path | None = None) -> int:
    """Run mutants in as many copies as there are cores; returns the exit code."""
    chosen = [m for m in MUTANTS if not words or any(w in m.name + m.file for w in words)]
    if not chosen:
        sys.stdout.write("no mistake has this word in its name or file; see mutants.toml\n")
        return 2
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as top:
        copies = [Path(top, str(i)) for i in range(min(MOST_COPIES, os.cpu_count() or 1))]
        free: SimpleQueue[Path] = SimpleQueue()
        for copy in copies:
            shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
            free.put(copy)
        state, known = state_of(copies[0]), set[str]()
        if keep is not None and keep.is_file():
            known = set(keep.read_text(encoding="utf-8").splitlines())
        tests = list(dict.fromkeys(m.test for m in chosen))
        passed = f"{state} {len(tests)} named tests pass"
        if passed not in known and run_tests(copies[0], *tests, first_only=False) != PASSED:
            sys.stdout.write("a named test does not pass on the unchanged project\n")
            return 1

        def kept(line: str) -> None:
            if keep is not None and line not in known:
                with keep.open("a", encoding="utf-8") as file:
                    file.write(f"{line}\n")

        def judged(mutant: Mutant) -> str:
            caught = f"{state} caught {mutant.name}"
            copy = free.get()
            try:
                word = "caught" if caught in known else verdict(mutant, copy)
            finally:
                free.put(copy)
            if word == "caught":
                kept(caught)
            sys.stdout.write(f"{word:16}{mutant.file:38}{mutant.name}\n")
            sys.stdout.flush()
            return word

        kept(passed)
        with ThreadPoolExecutor(len(copies)) as pool:
            found = list(zip(chosen, pool.map(judged, chosen), strict=True))
    bad = sum(word != "caught" for _, word in found)
    caught = len(found) - bad
    sys.stdout.write(
        f"{len(found)} seeded, {caught} caught, {bad} not, in {time.monotonic() - began:.0f} s\n"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    words, keep = sys.argv[1:], None
    if words[:1] == ["--keep"]:
        keep = Path(words[1])
        keep.parent.mkdir(parents=True, exist_ok=True)
        words = words[2:]
    raise SystemExit(main(words, keep))
