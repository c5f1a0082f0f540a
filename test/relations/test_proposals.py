"""Relation 11: what one command proposes, the next takes; here for a lab that is alone.

"One lab alone is fine" is said on the first page.  The same data stand in a folder, and one level
below a folder, and every command is given either.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from cape import cli

# Few people, as in a first try: what else E150 asks for
EPSILON = ("--epsilon", "8", "--delta", "1e-5", "--set", "accept_low_quality=true")
Capture = pytest.CaptureFixture[str]


def typed(seen: Capture, *words: object, code: int = 0) -> str:
    """Type a command that must end with `code`; return what it says on both streams."""
    got = cli.main([str(word) for word in words])
    told = "".join(seen.readouterr())
    assert got == code, told
    return told


def images(lab: Path) -> None:
    cli.main(["synth", str(lab.parent), "--site-sizes", "3", "--timepoints", "140", "--networks",
              "2", "--layout", "fmriprep", "--voxel", "10", "--quiet"])  # fmt: skip
    (lab.parent / "local0").rename(lab)


def series(lab: Path) -> None:
    lab.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for k in range(4):
        header = ",".join(f"region{i}" for i in range(6))
        table = rng.laplace(size=(120, 6))
        np.savetxt(lab / f"sub-{k}.csv", table, delimiter=",", header=header, comments="")


def people(lab: Path) -> None:
    cli.main(["synth", str(lab.parent), "--preset", "volumes", "--sites", "1", "--subjects", "400",
              "--quiet"])  # fmt: skip
    (lab.parent / "local0").rename(lab)


@pytest.mark.parametrize("below", [False, True], ids=["in its folder", "one level above"])
@pytest.mark.parametrize("data", [pytest.param(images, marks=pytest.mark.long), series, people])
def test_a_lab_alone_types_what_it_is_told_to_type(tmp_path, capsys, data, below: bool) -> None:
    study = tmp_path / "study"
    data(study / "lab")
    folder = study if below else study / "lab"
    if data is not people:  # the owner of a comparison writes the question
        (study / "settings.toml").unlink(missing_ok=True)
        told = typed(capsys, "init", folder, code=2 if data is series else 0)
        if data is series:  # it says which commands answer what a table does not
            told = typed(capsys, *shlex.split(re.search(r"^  cape (init .*?)  \(", told, re.M)[1]))
        proposed = re.search(r"then: cape (validate .*)", told)[1]
        assert "READY: " in typed(capsys, *shlex.split(proposed))
    typed(capsys, "people", folder)
    # `validate` called the lab by the folder of its files, `simulate` by the one that is typed.
    told = typed(capsys, "validate", folder)
    assert "READY: " in told
    assert f"site {folder.name}" in told
    typed(capsys, "simulate", folder, "--out", tmp_path / "out", *EPSILON, "--quiet")
    assert (tmp_path / "out" / "consortium" / "index.html").is_file()
    assert (tmp_path / "out" / folder.name / "private").is_dir()


def test_a_site_of_a_consortium_rehearses_alone_with_the_settings_beside_it(
    tmp_path: Path, capsys: Capture
) -> None:
    """`validate` read them and said READY; `simulate` took the defaults and refused everybody."""
    study, site = tmp_path / "study", tmp_path / "study" / "local1"
    series(study / "local0")
    series(site)
    typed(capsys, "init", study, "--orientation", "time_by_feature")
    assert "READY: " in typed(capsys, "validate", site)
    assert "n_sites = 2" in (study / "settings.toml").read_text()
    told = typed(capsys, "simulate", site, "--out", tmp_path / "out", *EPSILON, "--quiet")
    assert "no settings.toml" not in told
    assert (tmp_path / "out" / "consortium" / "index.html").is_file()
