"""docs/howto-inputs.md as a new user types it; and a real scan through all of it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape.cli import main
from cape.report import site_page
from support.consortium import no_pictures
from support.typed_pages import Shell, Step, places, steps_of, typed

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto-inputs.md"
SECTIONS = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
JOURNEYS = [section for section in SECTIONS if re.match(r"\d\. ", section)]


def of_section(section: str) -> list[Step]:
    """Return the commands of a section; where it finds a mistake, `cape validate` ends with 1."""
    found = steps_of(section, PAGE.name)
    return [
        replace(
            step,
            exit_code=int(any(line.startswith("NOT READY") for line in step.expected)),
            place=f"docs/{PAGE.name} {section[0]} {number}",
        )
        for number, step in enumerate(found)
    ]


@pytest.mark.document
@pytest.mark.parametrize("section", JOURNEYS, ids=[s.partition("\n")[0] for s in JOURNEYS])
def test_a_journey_of_the_page_ends_in_a_report_and_its_mistake_in_a_remedy(
    section, tmp_path, monkeypatch, capfd, record_property
):
    monkeypatch.chdir(tmp_path)
    if section[0] not in "145":  # one private page for each kind of features: images, matrix, atlas
        monkeypatch.setattr(site_page, "render_site", lambda folder: folder / "index.html")
    commands = of_section(section)
    typed(commands, Shell(monkeypatch, capfd))
    record_property("typed", places(commands))
    reports = list(tmp_path.glob("*-results/consortium/index.html"))
    assert len(reports) == 1
    assert reports[0].stat().st_size > 10_000
    assert any("Fix: " in line for line in commands[-1].expected)


def test_the_page_has_six_journeys_and_every_one_a_mistake():
    assert len(JOURNEYS) == 6
    for section in JOURNEYS:
        commands = [step.command for step in of_section(section)]
        kinds = {command.split()[1] for command in commands if command.startswith("cape")}
        assert kinds - {"pairs", "init", "people"} == {"synth", "validate", "simulate"}


# ------------------------------------------------------------------------------- a real scan


def real_scan() -> nib.Nifti1Image:
    """Return the functional image that nibabel's own package brings for its tests."""
    return nib.load(Path(nib.__file__).parent / "tests" / "data" / "functional.nii")


def site_with(folder: Path, n_subjects: int, rng: np.random.Generator) -> None:
    """Write the scan as several people: noise and a slow drift on top, each another."""
    image = real_scan()
    values = np.asarray(image.dataobj, dtype=np.float32)
    folder.mkdir(parents=True)
    mean = values.mean(axis=3)
    mask = nib.Nifti1Image((mean > 0.4 * mean.max()).astype(np.uint8), image.affine)
    mask.to_filename(folder / "mask.nii.gz")
    for m in range(n_subjects):
        drift = np.linspace(-1, 1, values.shape[3]) * rng.normal(0, 0.01)
        noise = rng.normal(0, 0.01 * values.std(), values.shape)
        other = nib.Nifti1Image((values * (1 + drift) + noise).astype(np.float32), image.affine)
        other.header.set_xyzt_units("mm", "sec")
        other.header.set_zooms((*image.header.get_zooms()[:3], 2.0))
        other.to_filename(folder / f"sub-{folder.name}{m}_bold.nii.gz")


REAL = ["--set", "mask=file", "--set", "min_timepoints=15", "--set", "n_components=3",
        "--set", "n_basis=40"]  # fmt: skip


def test_a_real_scan_goes_through_validate_as_it_is(tmp_path, capsys):
    site_with(tmp_path / "one", 0, np.random.default_rng(0))
    shutil.copy(
        Path(nib.__file__).parent / "tests" / "data" / "functional.nii",
        tmp_path / "one/sub-11_bold.nii",
    )
    assert main(["validate", str(tmp_path / "one"), *REAL, "--set", "min_sites=2"]) == 3
    text = capsys.readouterr().out  # one subject is below the site's own minimum, no more
    assert "CAPE-E153" in text
    assert "NOT READY: 1 errors" in text
    # 20 volumes less mean, two trends and the global signal: images get the recipe of capegica.
    row = next(line for line in text.splitlines() if line.startswith("sub-11"))
    assert row.split() == ["sub-11", "1", "20", "2", "reoriented", "100", "%", "0", "%",
                           "16", "ok"]  # fmt: skip
    refused = [*REAL[:2], "--set", "min_timepoints=30", *REAL[4:]]
    assert main(["validate", str(tmp_path / "one"), *refused]) == 1
    assert "20 time points" in capsys.readouterr().out


def test_the_real_scan_as_several_people_goes_through_a_run_without_special_cases(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(site_page, "render_site", lambda folder: folder / "index.html")
    rng = np.random.default_rng(4)
    for name, size in (("a", 5), ("b", 4), ("c", 3)):
        site_with(tmp_path / "study" / name, size, rng)
    assert main(["validate", str(tmp_path / "study"), *REAL]) == 0
    assert "READY: 12 subjects" in capsys.readouterr().out
    settings = [*REAL, "--set", "private=false", "--set", "n_rounds=10", "--quiet"]
    assert (
        main(["simulate", str(tmp_path / "study"), "--out", str(tmp_path / "out"), *settings]) == 0
    )
    found = json.loads((tmp_path / "out" / "consortium" / "results.json").read_text())
    assert found["n_subjects"] == 12
    assert found["n_components"] == 3
    maps = nib.load(tmp_path / "out" / "consortium" / "group_maps.nii.gz")
    assert maps.shape == (17, 21, 3, 3)
    inside = np.asarray(nib.load(tmp_path / "study" / "a" / "mask.nii.gz").dataobj) > 0
    if np.linalg.det(maps.affine[:3, :3]) * np.linalg.det(real_scan().affine[:3, :3]) < 0:
        inside = inside[::-1]
    values = np.asarray(maps.dataobj)
    assert np.isfinite(values).all()
    assert not values[~inside].any()
    assert (values[inside].std(axis=0) > 0.5).all()
    other_tools_read_what_stays_at_a_site(tmp_path / "out" / "a" / "private")


def other_tools_read_what_stays_at_a_site(private: Path) -> None:
    """As docs/reports.md types it: nilearn refuses images of several volumes a person."""
    names = ("pandas", "nilearn.glm.second_level", "nilearn.image")
    pandas, second_level, image = map(pytest.importorskip, names)
    files = sorted(private.rglob("*_statmap.nii.gz"))
    assert nib.load(files[0]).header.get_intent()[::2] == ("z score", "z-map")
    images = [image.index_img(file, 0) for file in files]
    table = pandas.DataFrame({"intercept": [1.0] * len(images)})
    inside = np.all([np.asarray(one.dataobj) != 0 for one in images], axis=0)
    mask = nib.Nifti1Image(inside.astype(np.uint8), images[0].affine)
    z = second_level.SecondLevelModel(mask).fit(images, design_matrix=table).compute_contrast()
    assert z.shape == images[0].shape
    assert np.isfinite(z.get_fdata()).all()
    assert z.get_fdata().any()
    courses = pandas.read_csv(min(private.rglob("*_timeseries.tsv")), sep="\t")
    assert list(courses.columns) == ["volume", "time", "censored", "C01", "C02", "C03"]
    assert len(images) == 5


# --------------------------------------------------------- programs, typed in an empty folder

SMALL = "--set n_components=3 --set n_rounds=1 --set accept_low_quality=true"
BUDGET = "--epsilon 8 --delta 1e-5"


def in_folder(folder: Path, line: str, env: dict[str, str] | None = None) -> str:
    """Return what a command says, typed in a folder; it must end with 0."""
    words = [sys.executable, "-m", "cape", *shlex.split(line)]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def of_run(folder: Path) -> list[bytes]:
    names = ("unmixing.npz", "privacy.json", "index.html")
    return [(folder / "consortium" / name).read_bytes() for name in names]


@pytest.mark.document
@pytest.mark.long
def test_one_lab_has_a_run_of_its_folder_by_one_command_and_the_same_in_python(tmp_path):
    in_folder(tmp_path, "synth study --site-sizes 8,8 --timepoints 40 --networks 2 --quiet")
    shutil.move(tmp_path / "study" / "local0", tmp_path / "mylab")
    shutil.rmtree(tmp_path / "study")
    said = in_folder(tmp_path, f"simulate mylab --out out {BUDGET} {SMALL} --set min_timepoints=30")
    assert "one site: any noise is all its own" in said
    results = json.loads((tmp_path / "out" / "consortium" / "results.json").read_text())
    assert (results["n_sites"], results["n_subjects"]) == (1, 8)
    assert (tmp_path / "out" / "mylab" / "private" / "index.html").is_file()
    typed_in_python = (
        "import cape, glob\n"
        "own = {'min_timepoints': 30}\n"
        "ica = cape.JointICA(n_components=3, private=False, settings=own)\n"
        "ica.fit(sorted(glob.glob('mylab/*.nii.gz')))\n"
        "print(*ica.components_img_.shape)\n"
    )
    words = [sys.executable, "-c", typed_in_python]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["21", "25", "20", "3"]), done.stderr


@pytest.mark.document
@pytest.mark.long
def test_a_run_that_is_stopped_is_started_again_and_one_that_ended_is_repeated(tmp_path):
    """All three have the same bytes; the run that ended is never replaced."""
    # Pages of words: that equal results are drawn alike is a test of its own.
    env = {**os.environ, "PYTHONPATH": str(no_pictures(tmp_path / "no-pictures"))}
    in_folder(tmp_path, "synth study --site-sizes 4,4,4 --timepoints 40 --networks 2 --quiet")
    line = f"simulate study --seed 3 {BUDGET} {SMALL} --json --out"
    in_folder(tmp_path, f"{line} whole", env)
    words = [sys.executable, "-m", "cape", *shlex.split(f"{line} stopped")]
    # Tests that a shell runs in its background pass on that an interrupt is ignored.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    running = subprocess.Popen(
        words, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=heard,
    )  # fmt: skip
    assert running.stdout is not None
    for told in running.stdout:
        if b'"exchange"' in told:
            running.send_signal(signal.SIGINT)
            break
    said = b"".join(running.communicate())
    assert running.returncode == 130
    assert b"the same command starts it again" in said
    in_folder(tmp_path, f"{line} stopped", env)
    assert of_run(tmp_path / "stopped") == of_run(tmp_path / "whole")
    in_folder(tmp_path, "rerun whole --out again", env)
    assert of_run(tmp_path / "again") == of_run(tmp_path / "whole")
