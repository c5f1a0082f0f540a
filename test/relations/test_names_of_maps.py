"""Relation: maps or an atlas whose table of names changed are never published under the old names.

`cape init --maps` writes the names into settings.toml.  A corrected table (left and right of two
labels swapped) or another one was ignored from then on, on every road: tables carried the old
names, and pictures were dropped, or drawn at the places of others, without a word.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

import cape
from cape import cli
from cape.errors import CapeError
from cape.planning.public_maps import networks_of
from cape.report.files import read_table
from support.comparison_study import write_images

NAMES = ("precuneus left", "precuneus right", "insula")
SAME = {"as they were": (NAMES, "xyy"), "in capitals": (tuple(map(str.upper, NAMES)), "xyy")}
CHANGED = {
    "two are swapped": ((NAMES[1], NAMES[0], NAMES[2]), "xyy"),
    "all are others": (("a", "b", "c"), "xyy"),
    "a domain is another": (NAMES, "xxy"),
}
RUN = ("--computation", "capecontrast", "--set", "private=false")
Study = tuple[Path, Path, Path]


def write_table(maps: Path, names: tuple[str, ...], domains: str) -> None:
    rows = [
        f"{k}\t{name}\t{of}" for k, (name, of) in enumerate(zip(names, domains, strict=True), 1)
    ]
    table = maps.with_name(maps.name.removesuffix(".nii.gz") + ".tsv")
    table.write_text("\n".join(["index\tname\tdomain", *rows]) + "\n")


@pytest.fixture(scope="module", params=["maps", "atlas"])
def study(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Return sites, the maps that their settings name, and the results of a run."""
    study, maps = write_images(tmp_path_factory.mktemp(request.param), (4, 3, 3))
    if request.param == "atlas":  # of a name of two letters, whose own table was none
        image = nib.load(maps)
        values, maps = np.asarray(image.dataobj), maps.with_name("at.nii.gz")
        labels = np.where(values.any(axis=3), values.argmax(axis=3) + 1, 0)
        nib.Nifti1Image(labels.astype(np.int16), image.affine, image.header).to_filename(maps)
    write_table(maps, *SAME["as they were"])
    settings = study / "settings.toml"
    networks = f'outcomes = "domains"\nnetworks = """{networks_of(maps, 3)} """'
    settings.write_text(settings.read_text().replace('outcomes = "fnc"', networks))
    out = maps.with_name("out")
    words = ["simulate", study, "--maps", maps, "--out", out, *RUN, "--quiet"]
    assert cli.main(list(map(str, words))) == 0
    return study, maps, out


@pytest.fixture
def named(study: Study) -> Iterator[Study]:
    yield study
    write_table(study[1], *SAME["as they were"])


def typed(*words: object) -> None:
    """Type a command; SystemExit if it is refused."""
    if code := cli.main(list(map(str, words))):
        raise SystemExit(code)


def simulate(study: Path, maps: Path, out: Path, _: Path) -> None:
    typed("simulate", study, "--maps", maps, "--out", out, *RUN, "--quiet")


def validate(study: Path, maps: Path, *_: Path) -> None:
    typed("validate", study, "--maps", maps, "--fast", "--set", "epsilon=300")


def job(study: Path, maps: Path, out: Path, _: Path) -> None:
    settings = (
        "--settings",
        study / "settings.toml",
        "--set",
        "epsilon=300",
        "--set",
        "delta=1e-5",
    )
    names = ("--set", "site_names=local0,local1,local2")
    typed("flare", "job", out, "--maps", maps, "--subjects", 4000, *settings, *names)


def python(study: Path, maps: Path, out: Path, _: Path) -> None:
    settings = {"computation": "capecontrast"}
    cape.simulate(str(study), out=out, private=False, maps=maps, settings=settings)


def of_the_sites(study: Path, maps: Path, out: Path, _: Path) -> None:
    """As in COINSTAC: the owner sent the maps, and every site has them with their table."""
    sites = out.with_name("study")
    shutil.copytree(study, sites)
    for site in ("local0", "local1", "local2"):
        for path in maps.parent.glob(f"{maps.name.removesuffix('nii.gz')}*"):
            shutil.copy(path, sites / site / f"templates.{path.name.partition('.')[2]}")
    typed("simulate", sites, "--out", out, *RUN, "--quiet")


def report(_: Path, maps: Path, out: Path, done: Path) -> None:
    typed("report", done, "--maps", maps, "--out", out)


ROADS: tuple[Callable[..., None], ...] = (simulate, validate, job, python, of_the_sites, report)


@pytest.mark.filterwarnings("ignore::cape.CapeWarning")
@pytest.mark.parametrize("road", ROADS)
def test_a_table_that_names_other_maps_is_refused(
    named: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str], road: Callable[..., None]
) -> None:
    study, maps, done = named
    for what, (names, domains) in CHANGED.items():
        write_table(maps, names, domains)
        out = tmp_path / what / "out"
        out.parent.mkdir()
        if road is report and what == "a domain is another":
            continue  # the domains are the run's
        with pytest.raises((SystemExit, CapeError)) as caught:
            road(study, maps, out, done)
        told = str(caught.value) + "".join(capsys.readouterr())
        assert any(f"CAPE-{code}" in told for code in ("E012", "E280", "E016")), told
        assert re.search(r"map [12] ", told), told
        assert not (out / "consortium" / "effects.tsv").exists() or road is report


@pytest.mark.filterwarnings("ignore::cape.CapeWarning")
@pytest.mark.parametrize("road", [validate, job, report])
def test_a_table_that_names_the_same_maps_is_taken_and_all_are_drawn(
    named: Study, tmp_path: Path, road: Callable[..., None]
) -> None:
    study, maps, done = named
    for what, (names, domains) in SAME.items():
        write_table(maps, names, domains)
        out = tmp_path / what
        road(study, maps, out, done)
        if road is report:
            rows = list(read_table(out / "consortium" / "networks.tsv"))
            expected = list(zip(NAMES, "xyy", strict=True))
            assert [(row["name"], row["domain"]) for row in rows] == expected
            assert all(row["file"] == "networks.nii.gz" for row in rows)
