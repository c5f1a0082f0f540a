"""capecontrast on time courses of public maps: settings, sites, maps that are named.

Belongs to `cape/computations/capecontrast.py`.
"""

import shutil
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest

from cape.computations.capecontrast import CapeContrastConfig, plan_run
from cape.data.templates import digest_with, number_of_maps
from cape.engines.flare.rounds import AggregatorRounds
from cape.errors import CapeWarning, ConfigError
from cape.planning.public_maps import networks_of
from cape.protocol.model import RosterEntry
from cape.report import Brought, add_maps
from cape.report.files import write_rows
from cape.report.maps import Component
from cape.settings.resolved import resolve
from cape.simulation import simulate as simulation
from cape.simulation.run_loop import read_setup
from cape.simulation.simulate import refused_by_policies
from cape.site.site_data import FileSource
from cape.space.feature_space import FeatureSpace
from support import consortium as helper
from support.comparison_study import OF_IMAGES, write_images
from support.simulation import simulate

GIVEN: dict[str, Any] = {
    "epsilon": 50.0, "delta": 1e-5, "variables": "dx control/patient, age 18:90", "outcomes": "fnc",
    "formula": "dx + age", "public": "dx", "networks": "C01, C02, C03", "mask": "MNI152-10mm",
    "min_timepoints": 20, "accept_low_quality": True,
}  # fmt: skip


def config_of(**changed: Any) -> CapeContrastConfig:
    return CapeContrastConfig.from_input({**GIVEN, **changed})


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    return write_images(tmp_path_factory.mktemp("study"))[0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"networks": ""}, "E013 .*networks"),
        ({"outcomes": "domains"}, "give the domain of C01"),
        ({"outcomes": "falff", "low_pass": 0.1}, "low_pass=0.1: allowed 0"),
        ({"networks": ", ".join(f"C{n}" for n in range(40))}, "780 of fnc: allowed at most 500"),
    ],
)
def test_outcomes_that_no_images_could_give_are_refused(changed, said) -> None:
    with pytest.raises(ConfigError, match=said):
        config_of(**changed)


def test_images_are_read_as_for_maps_and_rows_of_tables_as_they_are() -> None:
    images = resolve(config_of(high_pass=0.01))
    assert images.reading.feature_space == "mask"
    assert (images.basis, images.templates, images.widest) == ("courses", True, 3)
    assert images.reading.high_pass == 0.01
    assert images.reading.cleaning.standardize == "variance"
    table = config_of(outcomes="volume 0:40", networks="")
    assert table.feature_space == "matrix"
    assert table.min_timepoints == 1
    assert resolve(table).basis == "none"
    named = config_of(outcomes="domains", networks="C01 (x), C02 (x), C03 (y)")
    assert [one.name for one in named.asked.outcomes] == ["x", "x - y"]
    maps = FeatureSpace.of_matrix(10).with_templates(np.eye(10)[:, :2])
    entries = tuple(
        RosterEntry(site=f"site{s}", nonce="", n_subjects=20, counts=(10, 10)) for s in range(3)
    )
    with pytest.raises(ConfigError, match="networks=3 names: allowed 2, one for each map there"):
        plan_run(config_of(), entries, maps)


def test_a_planted_difference_between_images_is_found_by_maps_that_are_named(study, tmp_path):
    maps = study.parent / "maps.nii.gz"
    settings = {name: GIVEN[name] for name in ("epsilon", "delta")} | {
        "computation": "capecontrast", "epsilon": 300.0, "test": "each",
        "accept_low_quality": True,
    }  # fmt: skip
    folder = simulate(study, out=tmp_path / "out", settings=settings, maps=maps, seed=3)
    setup = read_setup(tmp_path / "out")
    assert (setup.settings["networks"], setup.maps) == ("C01, C02, C03", str(maps.resolve()))
    lines = (folder / "effects.tsv").read_text().splitlines()
    rows = [dict(zip(lines[0].split("\t"), line.split("\t"), strict=True)) for line in lines[1:]]
    assert [row["outcome"] for row in rows] == ["C01 - C02", "C01 - C03", "C02 - C03"]
    assert rows[0]["unit"] == "Fisher z"
    # planted: -.18, 0, 0
    estimates = [float(row["estimate"]) for row in rows]
    assert int(np.argmin(estimates)) == 0
    assert estimates[0] < -0.08
    (refusal,) = refused_by_policies(study, settings, maps)
    assert "of its own: CAPE-E168 the counts of dx are not in public_counts; CAPE-E260" in refusal
    own = sorted(study.glob("*/"))[0] / "site-policy.toml"
    own.write_text('public_counts = ["dx"]\n')
    by_own, others = refused_by_policies(study, settings, maps)
    own.unlink()
    assert by_own.startswith(
        f"{own.parent.name}, by its own site-policy.toml: CAPE-E260 max_run=8 at"
    )
    assert own.parent.name not in others

    # Maps that the owner brings later, or with a job of FLARE, are shown if the sites had them.
    image = nib.load(maps)
    other = tmp_path / "other.nii.gz"
    nib.save(nib.Nifti1Image(np.asarray(image.dataobj)[..., ::-1], image.affine), other)
    with pytest.raises(ConfigError, match=r"E016 .*other.nii.gz holds other maps than those"):
        add_maps(folder, Brought(path=other, labels={}), digest_with)
    rounds = AggregatorRounds("ab" * 16, setup.settings, tmp_path / "runs")
    rounds.home.mkdir(parents=True)
    folder.rename(rounds.results)
    pictures = rounds.results / "networks.nii.gz"
    pictures.unlink()
    with pytest.warns(CapeWarning, match="the maps of the job are not shown: CAPE-E016"):
        rounds.show(other)
    other.write_bytes(b"no image")
    with pytest.warns(CapeWarning, match="the maps of the job are not shown"):
        rounds.show(other)
    assert not pictures.exists()
    rounds.show(maps)
    assert pictures.is_file()


def test_who_has_no_outcome_is_told_to_the_site_and_read_again_alike(study, tmp_path) -> None:
    """At a repetition time that nobody knows there are no spectra."""
    site = tmp_path / "site"
    shutil.copytree(study / "local2", site)
    config = config_of(outcomes="falff")
    maps = study.parent / "maps.nii.gz"
    source = FileSource(site, {}, config, "A", maps=maps)
    first = dict(source.reduced(3))
    again = dict(source.reduced(3))
    assert all(np.isfinite(row[:3]).all() for row in first.values())
    for label, row in first.items():
        np.testing.assert_allclose(again[label], row, rtol=1e-5)
    assert source.notice == ""
    slow = FileSource(site, {}, config_of(outcomes="falff", tr=3.0), "A", maps=maps)
    for path in site.glob("*.nii.gz"):
        path.with_name(path.name[:-7] + ".json").write_text('{"RepetitionTime": 3.0}')
    assert all(np.isnan(row[:3]).all() for _, row in slow.reduced(3))
    assert "give no outcome" in slow.notice


def test_maps_that_nobody_would_look_at_are_refused(study, tmp_path) -> None:
    chosen = {"epsilon": 8.0, "delta": 1e-5, "computation": "capegica"}
    maps = study.parent / "maps.nii.gz"
    with pytest.raises(ConfigError, match="capegica regresses on no maps"):
        simulate(study, out=tmp_path / "out", settings=chosen, maps=maps)


@pytest.mark.parametrize("through", ["wire", pytest.param("process", marks=pytest.mark.slow)])
def test_maps_that_are_named_reach_sites_that_are_called_with_documents(
    tmp_path, monkeypatch, through
) -> None:
    """Only memory named them; a folder of other maps at a site is left as it is."""
    monkeypatch.setenv("PYTHONPATH", str(helper.no_pictures(tmp_path / "hidden")))
    study, maps = write_images(tmp_path, (6, 5, 4))
    others = study / "local0" / "group_maps.nii.gz"
    others.write_bytes(b"none")
    found = {}
    for how in ("memory", through):
        with helper.without_pages():
            out = simulate(
                study, out=tmp_path / how, settings=OF_IMAGES, maps=maps, seed=3, through=how
            )
        files = (path for path in out.iterdir() if path.name not in ("index.html", "methods.md"))
        found[how] = {path.name: path.read_bytes() for path in files}
    assert found["memory"] == found[through]
    assert "effects.tsv" in found["memory"]
    assert others.read_bytes() == b"none"


def test_of_a_finished_run_only_the_file_of_its_maps_is_named(study, tmp_path, monkeypatch) -> None:
    """A container that saw the run's whole folder would see what each site keeps to itself."""
    asked = []
    monkeypatch.setattr(simulation, "_play", lambda setup, *_: asked.append(setup))
    maps = tmp_path / "out" / "consortium" / "group_maps.nii.gz"
    maps.parent.mkdir(parents=True)
    shutil.copy(study.parent / "maps.nii.gz", maps)
    simulate(study, out=tmp_path / "answer", settings=OF_IMAGES, maps=tmp_path / "out")
    assert asked[0].maps == str(maps)


def test_maps_are_called_as_their_run_calls_them(study, tmp_path) -> None:
    maps = tmp_path / "group_maps.nii.gz"
    shutil.copy(study.parent / "maps.nii.gz", maps)
    assert networks_of(tmp_path, 3) == "C01, C02, C03"
    labels = ("visual", None, "motor, left")
    rows = [
        Component(name=f"IC0{k}", share=None, skewness=0.0, kurtosis=0.0, peak_feature=1,
                  peak_z=3.0, label=label)
        for k, label in enumerate(labels, start=1)
    ]  # fmt: skip
    write_rows(tmp_path / "components.tsv", Component, rows)
    named = networks_of(tmp_path, 3)
    assert named == '"IC01 visual", IC02, "IC03 motor, left"'
    config = config_of(networks=named)
    assert config.asked.outcomes[0].name == "IC01 visual - IC02"
    assert networks_of(tmp_path, 2) == "C01, C02"  # a table of other maps


def test_maps_are_counted_by_their_header(study, tmp_path) -> None:
    assert number_of_maps(study.parent / "maps.nii.gz") == 3
    assert number_of_maps(tmp_path) == 0
    (tmp_path / "templates.csv").write_text("a,b\n1,2\n3,4\n")
    assert number_of_maps(tmp_path) == 2
    broken = tmp_path / "maps.nii.gz"
    broken.write_bytes(b"none")
    assert number_of_maps(broken) == 0
