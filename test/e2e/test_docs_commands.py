"""Every ```console block of the documentation, as somebody types it.

A page is one session in an empty folder.  ``$ command`` must end with 0, or with n where
``# exit n`` stands behind it; the lines below it must be in what it prints, in any order and
spacing.  Blocks marked ``console slow`` run with the marker `slow`.  Pages with a test of their own
are left out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from support.typed_pages import BLOCK, PLAIN, plain, run, steps

TOP = Path(__file__).resolve().parents[2]
PAGES = sorted((TOP / "docs").rglob("*.md"))
ELSEWHERE = {"howto-inputs.md": "test/e2e/test_journeys.py", "study.md": "test/e2e/test_study.py"}


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
