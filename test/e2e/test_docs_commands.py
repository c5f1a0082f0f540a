"""The rehearsal: every command of the documentation, as somebody types it.

A page is one session in an empty folder (README and what is typed in a checkout: in one).
``$ command`` must end with 0, or with n where ``# exit n`` stands behind it; the lines below it
must be in what it prints, in any order and spacing.  Blocks marked ``console slow`` run with the
marker `slow`, those that need something with the marker of the make target that brings it, or where
a path to it is given (`support.typed_pages.NEEDS`).  Pages with a test of their own are left out.
What was typed, what nobody could type and what failed is counted at the end of pytest's report.
"""

from __future__ import annotations

import os
import re
from collections import Counter

import pytest

from support.typed_pages import (
    BLOCK,
    NEEDS,
    PLAIN,
    SOURCES,
    TOP,
    Shell,
    Step,
    checkout,
    places,
    present,
    steps,
    typed,
)

PAGES = [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]
ELSEWHERE = {"howto-inputs.md": "test/e2e/test_journeys.py", "study.md": "test/e2e/test_study.py"}
IN_A_CHECKOUT = ("README.md", "deploying.md", "neuroflame.md")
MARKERS = {
    "flare": pytest.mark.flare,
    "containers": pytest.mark.docker,
    "slurm": pytest.mark.cluster,
}
PROGRAMS = (
    r"cape|make|python3?|pip|pipx|nvflare|docker|podman|packaging/|\.venv/|coinstac-sim|node|sbatch"
)


def sessions() -> list[object]:
    """Return what of every page is typed where: quick, with slow parts, with what it needs."""
    made = []
    for page in PAGES:
        own = [] if page.name in ELSEWHERE else steps(page)
        free = [step for step in own if not step.needs]
        quick = [step for step in free if not step.slow]
        if any(not step.file for step in quick):
            made.append(pytest.param(page, quick, id=page.stem))
        if len(quick) < len(free):
            made.append(pytest.param(page, free, id=f"{page.stem}-whole", marks=pytest.mark.slow))
        for needs in dict.fromkeys(step.needs for step in own if step.needs not in ((), ("ci",))):
            # Alone with what everybody can type: each make target brings one of them.
            session = [step for step in own if set(step.needs) <= set(needs)]
            marks = [MARKERS[need] for need in needs if need in MARKERS] or [pytest.mark.slow]
            name = "-".join((page.stem, *needs))
            made.append(pytest.param(page, session, id=name, marks=marks))
    return made


@pytest.mark.document
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("page", "session"), sessions())
def test_the_commands_of_a_page_do_what_the_page_says(
    page, session, tmp_path, monkeypatch, capfd, record_property
):
    missing = {need for step in session for need in step.needs if not present(need)}
    if missing:
        # Sources are none of this project's; all else is typed by another make target.
        others = [step for step in session if missing & set(step.needs)]
        sources = [step for step in others if set(step.needs) & set(SOURCES)]
        record_property("source", places(sources))
        record_property("target", places(step for step in others if step not in sources))
        pytest.skip(f"{page.name}: {'; '.join(NEEDS[need] for need in sorted(missing))}")
    if page.name in IN_A_CHECKOUT:
        checkout(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("HOME", str(tmp_path))
    typed(session, Shell(monkeypatch, capfd))
    record_property("typed", places(session))


def test_what_nobody_types_is_what_needs_a_source():
    """Each need has a test that types its blocks, or a source that no target brings."""
    found = Counter(need for page in PAGES for step in steps(page) for need in step.needs)
    assert set(found) <= {"ci", *MARKERS, *SOURCES}
    assert found["flare"] > 5
    assert found["containers"] > 1


def test_what_the_ci_types_itself_stands_in_its_script():
    lines = (TOP / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    commands = [step.command for page in PAGES for step in steps(page) if "ci" in step.needs]
    assert commands
    for command in commands:
        assert command.partition("  #")[0].strip() in lines


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(TOP).as_posix())
def test_a_page_has_no_commands_outside_console_blocks(page):
    """A block in another shell dialect would run in no test."""
    text = page.read_text(encoding="utf-8")
    command = re.compile(rf"^ *(\$ |({PROGRAMS})\b)", re.MULTILINE)
    for _, kind, marks, block in BLOCK.findall(text):
        assert kind in PLAIN | {"console"}, f"{page.name}: a block of kind {kind}"
        if kind in ("", "text"):
            assert not command.search(block), page.name
        assert kind != "sh" or marks.strip(), f"{page.name}: a block of a shell that is no file"
    # Indented blocks are code, too.
    for line in re.findall(r"^ {4,}.*$", BLOCK.sub("", text), re.MULTILINE):
        assert not re.match(rf"\s+(\$ |(({PROGRAMS})[\w./-]*) )", line), f"{page.name}: {line}"


def test_pages_with_a_test_of_their_own_have_one():
    for name, place in ELSEWHERE.items():
        assert name in (TOP / place).read_text(encoding="utf-8")


def test_a_command_that_does_something_else_is_noticed(tmp_path, monkeypatch, capfd):
    """The test of the test."""
    monkeypatch.chdir(tmp_path)
    shell = Shell(monkeypatch, capfd)
    right = Step("cape --version", 0, ("cape 0.1.0",), slow=False)
    typed([right, Step("export X=$PWD/y", 0, (), slow=False)], shell)
    assert os.environ["X"] == f"{tmp_path}/y"
    for command, code, expected in (
        ("cape --version", 1, ()),
        ("cape --version", 0, ("cape 7",)),
        ("false", 0, ()),
    ):
        with pytest.raises(AssertionError):
            shell.type(Step(command, code, expected, slow=False))
