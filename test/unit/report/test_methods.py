"""What a paper can say: the data, the versions, what to cite; at a site with its counts."""

import dataclasses
import re
import stat
from pathlib import Path

import pytest

from cape.computations import load
from cape.report import methods, write_results, write_site
from cape.report.methods import WORKS
from support import report_example as example


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)


def with_settings(*, computation: str = "capedjica", **chosen: object):
    """Return an outcome on a grid of 8 mm whose settings are real ones."""
    made = example.outcome(dataclasses.replace(example.mask_space(), template_space="MNI152Lin"))
    settings = {"epsilon": 1.0, "delta": 1e-5, "mask": "file", "n_sites": 3, **chosen}
    config = load(computation).config.from_input(settings)
    return dataclasses.replace(made, computation=computation, settings=config.settings())


def methods_of(folder: Path, **chosen: object) -> str:
    write_results(folder, with_settings(**chosen))
    return (folder / "methods.md").read_text()


def test_the_paragraph_says_everything_that_was_done_to_the_data(tmp_path) -> None:
    text = methods_of(
        tmp_path, drop_first_volumes=4, smoothing_fwhm=6.0, high_pass=0.01, detrend="quadratic",
        confounds="motion24", tr=2.0, min_timepoints=120, standardize="variance",
    )  # fmt: skip
    for said in (
        "a grid of 6 x 7 x 6 voxels of 8 mm in MNI152Lin space",
        "images on another grid of the same template space were brought to it",
        "those of another space refused",
        "The first 4 volumes were dropped",
        "smoothed with a Gaussian of 6 mm (FWHM)",
        "Confounds: motion24; no volumes were scrubbed",
        "removed the mean, a quadratic trend, cosines up to 0.01 Hz and the confounds;",
        "divided by its standard deviation over time",
        "at least 120 time points",
        "The repetition time was 2 s at all sites",
        "Results were written on 1970-01-01 (UTC) with cape ",
        ", numpy ",
    ):
        assert said in text, said


@pytest.mark.parametrize(
    ("chosen", "said"),
    [({}, "No confounds were regressed out, and no volumes scrubbed"),
     ({}, "removed the mean and a linear trend (no filter); each feature"),
     ({"computation": "capegica"}, "a quadratic trend (no filter); each feature was then divided "
      "by its standard deviation over time, small ones raised to a floor and the mean over all "
      "features regressed out"),
     ({"confound_strategy": "motion=full,scrub=5", "fd_threshold": 0.3},
      "the strategy motion=full,scrub=5 of nilearn's load_confounds. Volumes with a framewise "
      "displacement above 0.3 mm"),
     ({"max_mean_fd": 0.4}, "Whoever moved more than 0.4 mm on average counted as zeros"),
     ({"confound_strategy": "motion=basic,high_pass"}, "a linear trend and the confounds; each"),
     ({"resample": "never"}, "images on another grid were refused")],
)  # fmt: skip
def test_defaults_and_other_settings_are_said_as_they_are(chosen, said) -> None:
    made = with_settings(**chosen)
    space = made.space
    place = (space.shape, space.affine, "MNI152Lin")
    assert said in methods.data_paragraph(made.computation, made.settings, "mask", *place)


def test_what_is_cited_stands_in_a_bibtex_file(tmp_path) -> None:
    text = methods_of(tmp_path, confound_strategy="motion,scrub")
    bib = (tmp_path / "references.bib").read_text()
    keys = re.findall(r"^@article\{(\w+),$", bib, re.M)
    assert keys[:2] == ["imtiaz2021", "baker2019"]
    assert {"power2012", "abraham2014", "harris2020"} <= set(keys)
    for key in keys:
        assert WORKS[key]["title"] in text
    # Braces that do not pair would break the whole file.
    assert bib.count("{") == bib.count("}")
    assert all(line.endswith(("{", ",", "}")) or not line for line in bib.splitlines())


def test_counts_of_a_sites_people_stay_in_its_own_folder(tmp_path) -> None:
    made = with_settings()
    labels = ("sub-01", "sub-02", "sub-03")
    inside = example.inside(made, labels)
    moved = dataclasses.replace(inside.subjects[0], mean_fd=0.41, n_scrubbed=7, minutes=3.2, tr=2.5)
    inside = dataclasses.replace(inside, subjects=(moved, *inside.subjects[1:]))
    write_site(tmp_path / "site", example.site_outcome(made, labels), inside)
    write_results(tmp_path / "consortium", made)
    private = tmp_path / "site" / "private" / "methods.md"
    text = private.read_text()
    for said in (
        "4 people were listed; 3 took part, with 3 runs in all, and 1 counted as zeros",
        "The repetition time was 2 to 2.5 s",
        "had 70 to 72 volumes (3.2 minutes); 7 volumes were scrubbed in all",
        "Mean framewise displacement was 0.41 mm",
        "covered 98 % of the features",
        "PRIVATE",
    ):
        assert said in text, said
    page = (private.parent / "index.html").read_text()
    assert "7 volumes were scrubbed" in page
    for file in (tmp_path / "consortium").iterdir():
        if file.suffix in (".md", ".html", ".json", ".tsv", ".bib"):
            found = file.read_text()
            assert "2.5 s" not in found
            assert "people were listed" not in found
            assert "0.41 mm" not in found


def test_the_methods_of_a_site_are_for_its_owner_alone(tmp_path) -> None:
    made = with_settings()
    write_site(tmp_path, example.site_outcome(made, ("sub-01",)), example.inside(made, ("sub-01",)))
    private = tmp_path / "private"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in private.iterdir()}
    assert modes["methods.md"] == modes["subjects.tsv"]
