"""The commands of a page of the documentation, and what it says that they print.

A block of kind ``console`` is typed.  Words behind that name say when: ``slow``, and what must be
there (`NEEDS`).  A block of another kind with a file name behind it is that file.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pathspec import GitIgnoreSpec

from cape.cli import main

TOP = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
PLAIN = {"", "python", "toml", "json", "text", "mermaid", "yaml", "sh"}
"""Kinds of blocks that hold no commands; python blocks are doctests."""
FILE = re.compile(r"[\w.-]+\.(toml|yml|yaml|js|sh)")

NEEDS = {
    "ci": "typed by .ci/run itself, which a test compares",
    "flare": "nvflare, which make test-flare installs",
    "containers": "a container service with our image, which make test-engine makes",
    "registry": "CAPE_REGISTRY=1: images and packages of ours can be pulled and pushed",
    "monorepo": "CAPE_COINSTAC: a checkout of COINSTAC's repository, with its simulator installed",
    "neuroflame": "CAPE_NEUROFLAME and CAPE_NEUROFLAME_PYTHON: a checkout of its boilerplate",
    "apptainer": "the program apptainer, and an image to make a file of",
    "slurm": "a cluster, which make test-cluster starts",
}
"""What a block may need beside this project."""
SOURCES = ("registry", "monorepo", "neuroflame", "apptainer")
"""Those that no make target of this project brings."""


@dataclass(frozen=True)
class Step:
    command: str
    exit_code: int
    expected: tuple[str, ...]
    slow: bool
    needs: tuple[str, ...] = ()
    file: str = ""
    """Not empty: `command` is the text of this file, written before what follows."""
    place: str = ""
    """Of the documentation, as the report counts it."""


def present(need: str) -> bool:
    """Whether what a block needs is here."""
    environment = os.environ
    return {
        "ci": False,
        "flare": importlib.util.find_spec("nvflare") is not None,
        "containers": bool(environment.get("DOCKER_HOST") and environment.get("CAPE_ENGINE")),
        "registry": bool(environment.get("CAPE_REGISTRY")),
        "monorepo": bool(environment.get("CAPE_COINSTAC")),
        "neuroflame": bool(environment.get("CAPE_NEUROFLAME")),
        "apptainer": shutil.which("apptainer") is not None,
        "slurm": bool(environment.get("SLURM_CONF")),
    }[need]


def steps(page: Path) -> list[Step]:
    found = steps_of(page.read_text(encoding="utf-8"), page.name)
    name = page.relative_to(TOP).as_posix()
    return [replace(step, place=f"{name} {number}") for number, step in enumerate(found)]


def steps_of(page: str, name: str) -> list[Step]:
    found: list[Step] = []
    for indent, kind, marks, text in BLOCK.findall(page):
        words = marks.split()
        lines = [line.removeprefix(indent) for line in text.splitlines()]
        if kind != "console":
            if words and FILE.fullmatch(words[0]):
                needs = tuple(word for word in words[1:] if word in NEEDS)
                whole = "\n".join(lines) + "\n"
                found.append(Step(whole, 0, (), slow=False, needs=needs, file=words[0]))
            continue
        unknown = set(words) - {"slow"} - set(NEEDS)
        assert not unknown, f"{name}: a block is marked {', '.join(unknown)}"
        needs = tuple(word for word in words if word in NEEDS)
        for line in lines:
            if line.startswith("$ "):
                command, _, code = line[2:].partition("  # exit ")
                found.append(Step(command, int(code or 0), (), "slow" in words, needs))
            else:
                last = found.pop()
                code = 1 if line.startswith("NOT READY") else last.exit_code
                found.append(replace(last, exit_code=code, expected=(*last.expected, line)))
    return found


def places(session: Iterable[Step]) -> list[str]:
    """Return the commands of a session as the report counts them: each once, whoever typed it."""
    return [step.place for step in session if not step.file]


def plain(text: str) -> str:
    return " ".join(text.split())


def checkout(folder: Path) -> None:
    """Make a folder what a checkout is to its commands: links to its files, and its environment."""
    lines = (TOP / ".gitignore").read_text(encoding="utf-8").splitlines()
    ignored = GitIgnoreSpec.from_lines([*lines, ".git"])
    for path in TOP.iterdir():
        if not ignored.match_file(f"{path.name}/" if path.is_dir() else path.name):
            (folder / path.name).symlink_to(path)
    (folder / ".venv" / "bin").mkdir(parents=True)
    here = Path(sys.executable).parent
    for name in ("cape", "python", "nvflare"):
        if (here / name).exists():
            (folder / ".venv" / "bin" / name).symlink_to(here / name)


@dataclass
class Shell:
    """Types commands one after the other, in the folder where the test is."""

    monkeypatch: pytest.MonkeyPatch
    capfd: pytest.CaptureFixture[str]

    def type(self, step: Step) -> None:
        if step.file:
            Path(step.file).write_text(step.command, encoding="utf-8")
            return
        code, text = self._run(step.command)
        assert code == step.exit_code, f"{step.command}\n{text}"
        for line in step.expected:
            assert plain(line) in plain(text), f"{step.command}\n{text}"

    def _run(self, command: str) -> tuple[int, str]:
        words = shlex.split(command)
        if words[0] == "cd":
            self.monkeypatch.chdir(words[1])
            return 0, ""
        if words[0] == "unset":
            self.monkeypatch.delenv(words[1])
            return 0, ""
        if words[0] == "export":
            name, _, value = command.removeprefix("export ").partition("=")
            said = subprocess.run(
                ["bash", "-c", f'printf %s "{value}"'], check=True, capture_output=True, text=True
            )
            self.monkeypatch.setenv(name, said.stdout)
            return 0, ""
        # A shell's own signs; all else of ours runs here, as the program does and in less time.
        if words[0] in ("cape", ".venv/bin/cape") and not set(command) & set("|><;&$*"):
            code = main(words[1:])
        else:
            environment = {**os.environ, "PWD": os.getcwd()}
            code = subprocess.run(["bash", "-c", command], check=False, env=environment).returncode
        out, err = self.capfd.readouterr()
        return code, out + err


def typed(session: Iterable[Step], shell: Shell) -> None:
    here = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"
    shell.monkeypatch.setenv("PATH", here)  # a page may put others before it
    try:
        for step in session:
            shell.type(step)
    finally:
        # A federation of a page that failed half way; its folder is the page's own.
        if "NVFLARE_POC_WORKSPACE" in os.environ:
            shell._run("nvflare poc stop")
