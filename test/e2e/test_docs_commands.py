"""Every ```console block of the documentation, as somebody types it.

A page is one session in an empty folder.  ``$ command`` must end with 0, or with n where
``# exit n`` stands behind it; the lines below it must be in what it prints, in any order and
spacing.  Blocks marked ``console slow`` run with the marker `slow`.  Pages with a test of their own
are left out.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from cape.cli import main

TOP = Path(__file__).resolve().parents[2]
PAGES = sorted((TOP / "docs").rglob("*.md"))
ELSEWHERE = {"howto-inputs.md": "test/e2e/test_journeys.py"}
BLOCK = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
PLAIN = {"", "python", "toml", "json", "text", "mermaid"}
"""Kinds of blocks that hold no commands; python blocks are doctests."""


@dataclass(frozen=True)
class Step:
    command: str
    exit_code: int
    expected: tuple[str, ...]
    slow: bool


def steps(page: Path) -> list[Step]:
    found: list[Step] = []
    for kind, mark, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind != "console":
            continue
        for line in text.splitlines():
            if line.startswith("$ "):
                command, _, code = line[2:].partition("  # exit ")
                found.append(Step(command, int(code or 0), (), slow="slow" in mark))
            else:
                last = found.pop()
                found.append(
                    Step(last.command, last.exit_code, (*last.expected, line), slow=last.slow)
                )
    return found


def sessions() -> list[object]:
    """Return the quick part of every page, and whole pages where some of it is slow."""
    made = []
    for page in PAGES:
        own = [] if page.name in ELSEWHERE else steps(page)
        quick = [step for step in own if not step.slow]
        if quick:
            made.append(pytest.param(quick, id=page.stem))
        if len(quick) < len(own):
            made.append(pytest.param(own, id=f"{page.stem}-whole", marks=pytest.mark.slow))
    return made


def plain(text: str) -> str:
    return " ".join(text.split())


def run(command: str, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    words = shlex.split(command)
    if words[0] == "cape":
        code = main(words[1:])
    else:
        program = [sys.executable, *words[1:]] if words[0] == "python" else words
        code = subprocess.run(program, check=False).returncode
    out, err = capfd.readouterr()
    return code, out + err


@pytest.mark.parametrize("session", sessions())
def test_the_commands_of_a_page_do_what_the_page_says(session, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for step in session:
        code, text = run(step.command, capfd)
        assert code == step.exit_code, f"{step.command}\n{text}"
        for line in step.expected:
            assert plain(line) in plain(text), f"{step.command}\n{text}"
    assert os.getcwd() == str(tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_no_commands_outside_console_blocks(page):
    """A block in another shell dialect would run in no test."""
    for kind, _, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        assert kind in PLAIN | {"console"}, f"{page.name}: a block of kind {kind}"
        if kind in ("", "text"):
            assert not re.search(r"^(\$ |cape |make |python )", text, re.MULTILINE), page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http", "mailto")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_index_lists_every_page_of_the_folder():
    text = (TOP / "docs" / "README.md").read_text(encoding="utf-8")
    missing = [p.name for p in (TOP / "docs").glob("*.md") if p.name not in text]
    assert [name for name in missing if name != "README.md"] == []


def test_pages_with_a_test_of_their_own_have_one():
    for name, place in ELSEWHERE.items():
        assert name in (TOP / place).read_text(encoding="utf-8")
