"""The rehearsal: every command of the documentation, as somebody types it.

A page is one session in an empty folder (README and what is typed in a checkout: in one).
``$ command`` must end with 0, with 1 where it prints NOT READY, or with n where ``# exit n`` stands
behind it; the lines below it must be in what it prints, in any order and spacing.  Blocks marked
``console slow`` run with the marker `slow`, those that need something with the marker of the make
target that brings it, or where a path to it is given (`support.typed_pages.NEEDS`).  What a session
leaves is looked at, too (`LEFT`).
What was typed, what nobody could type and what failed is counted at the end of pytest's report.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from support.surfaces import axis, write_study
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
        own = steps(page)
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


def check_inputs(folder: Path) -> None:
    """Each way in ends in a report, but for its mistake."""
    reports = list(folder.glob("*-results/consortium/index.html"))
    assert len(reports) >= 6
    assert all(report.stat().st_size > 10_000 for report in reports)


def check_study(folder: Path) -> None:
    results = json.loads((folder / "results" / "consortium" / "results.json").read_text())
    assert (results["n_subjects"], results["private"], results["status"]) == (9, False, "networks")
    rows = (folder / "results" / "local0" / "private" / "subjects.tsv").read_text().splitlines()
    header, first = rows[0].split("\t"), rows[1].split("\t")
    moved = float(first[header.index("mean_fd")])
    assert 0.05 < moved < 0.15  # six steps of .02 mm, |x| of each
    assert float(first[header.index("minutes")]) == pytest.approx(
        int(first[header.index("timepoints")]) * 2 / 60, abs=0.01
    )
    if (folder / "full").exists():
        check_slow_study(folder)


def check_slow_study(folder: Path) -> None:
    image = nib.load(next((folder / "full").rglob("*_bold.nii.gz")))
    assert image.shape[:3] == (97, 115, 97)
    assert np.allclose(image.header.get_zooms()[:3], 2)
    results = json.loads((folder / "cifti-results/consortium/results.json").read_text())
    assert (results["n_subjects"], results["n_features"]) == (9, len(axis(3)))
    # The maps are there, under the name that their status asks for.
    (path,) = (folder / "cifti-results/consortium").glob("*_maps.dscalar.nii")
    assert nib.load(path).header.get_axis(1) == axis(3)


LEFT: dict[str, Callable[[Path], None]] = {"howto-inputs.md": check_inputs, "study.md": check_study}
"""What the sessions of a page leave in their folder, where more is known than what they print."""


def write_cifti(folder: Path) -> None:
    """Write what the page on a study cannot make with `cape synth`: grayordinates of fMRIPrep."""
    write_study(folder / "cifti", axis(3), 3, people=3, n_times=120)
    for structure in (folder / "cifti").glob("local*/structure.dscalar.nii"):
        structure.unlink()


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
    if any(" cifti" in step.command for step in session):
        write_cifti(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("HOME", str(tmp_path))
    typed(session, Shell(monkeypatch, capfd))
    record_property("typed", places(session))
    LEFT.get(page.name, lambda folder: None)(tmp_path)


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
