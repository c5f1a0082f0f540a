"""The private folder of a site: which files, what is in them, and the page made from them."""

import dataclasses
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import cape.report
from cape.algorithms import kernel, subjects
from cape.algorithms.component_order import z_scores
from cape.cli import main
from cape.counting import CountedPeople
from cape.errors import ConfigError
from cape.lab.synthetic.generators import PRESETS, blob_maps
from cape.privacy.ledger import read_entries
from cape.protocol.messages import FeatureSpace
from cape.protocol.outcome import SiteOutcome, Table
from cape.report import files
from cape.site.policy import SitePolicy
from support import report_example as example

LABELS = ("sub-01", "sub-02", "sub-03")
COLUMNS = {
    "subjects.tsv": [
        "subject", "label", "files", "timepoints", "tr", "coverage", "rank", "grid",
        "tsnr", "mean_fd", "scrubbed", "minutes", "verdict",
        "clip_pca", "clip_iterate",
    ],
    "checks.tsv": ["code", "severity", "text"],
    "loadings.tsv": ["subject", "C01", "C02", "C03"],
    "fnc.tsv": ["subject", "C01-C02", "C01-C03", "C02-C03"],
    "spectra.tsv": ["subject", "unit", "frequency", "C01", "C02", "C03"],
    "map_agreement.tsv": ["subject", "C01", "C02", "C03"],
    "second_level.tsv": ["subject_label", "map_name", "effects_map_path"],
    "map_agreement_noise.tsv": ["subject", "C01", "C02", "C03"],
    "sub-01/func/sub-01_desc-cape_timeseries.tsv": [
        "volume", "time", "censored", "C01", "C02", "C03",
    ],
}  # fmt: skip
SENT = {"seq", "phase", "round", "message", "fields", "bytes", "sha256"}


def written(folder: Path, made=None, labels=LABELS) -> Path:
    made = example.outcome() if made is None else made
    cape.report.write_site(folder, example.site_outcome(made, labels), example.inside(made, labels))
    return folder / "private"


@pytest.fixture(scope="module")
def private(tmp_path_factory) -> Path:
    return written(tmp_path_factory.mktemp("site"))


@pytest.fixture
def _no_pictures(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def test_exactly_the_promised_files_are_written(private):
    found = {p.relative_to(private).as_posix() for p in private.rglob("*") if p.is_file()}
    kinds = ("desc-cape_timeseries.tsv", "desc-cape_stat-z_statmap.nii.gz")
    kinds += tuple(f"desc-capeC0{k}_stat-z_statmap.nii.gz" for k in (1, 2, 3))
    single = {f"{label}/func/{label}_{kind}" for label in LABELS for kind in kinds}
    fixed = {"index.html", "ledger.json", "methods.md", "sent.jsonl", "site.json"}
    fixed |= {"dataset_description.json", "desc-cape_timeseries.json", ".bidsignore"}
    tables = {name for name in COLUMNS if not name.startswith("sub-")}
    assert found == single | fixed | tables


@pytest.mark.parametrize("name", COLUMNS)
def test_tables_have_the_promised_columns_and_no_ragged_row(private, name):
    lines = [line.split("\t") for line in (private / name).read_text().splitlines()]
    assert lines[0] == COLUMNS[name]
    assert len(lines) > 1
    assert {len(line) for line in lines} == {len(COLUMNS[name])}


def test_every_reply_is_listed_with_its_digest_and_the_ledger_is_a_chain(private):
    lines = [json.loads(line) for line in (private / "sent.jsonl").read_text().splitlines()]
    assert [line["seq"] for line in lines] == [1, 2]
    assert all(set(line) == SENT for line in lines)
    kept = files.read_json(private / "ledger.json")
    assert read_entries(kept["entries"], head=kept["head"]) == example.outcome().ledger.events


def test_subjects_tell_verdict_coverage_and_clipping(private):
    rows = files.read_table(private / "subjects.tsv")
    assert [row["verdict"] for row in rows] == ["accepted"] * 3 + ["counts as zeros"]
    assert rows[3]["label"] == "sub-99"
    assert [row["clip_iterate"] for row in rows] == ["0.5", "1", "0.5", "n/a"]
    assert rows[0]["files"] == "sub-01_bold.nii.gz"
    assert rows[1]["timepoints"] == "71"


def test_connectivity_is_fisher_z_of_the_correlations(private):
    rows = files.read_table(private / "fnc.tsv")
    S = example.time_courses(3, 3)[1].astype(float)
    r = np.corrcoef(S)
    assert float(rows[1]["C01-C03"]) == pytest.approx(np.arctanh(r[0, 2]), rel=1e-4)


def test_subject_maps_are_least_squares_and_agree_with_the_common_ones(private):
    import nibabel

    made = example.outcome()
    X = next(iter(example.inside(made, LABELS).voxels()))[1].astype(float)
    S = example.time_courses(3, 3)[0].astype(float)
    S -= S.mean(axis=1, keepdims=True)
    fitted = np.linalg.lstsq(S.T, X.T, rcond=None)[0].T
    z = (fitted - fitted.mean(axis=0)) / fitted.std(axis=0)
    image = nibabel.load(private / "sub-01/func/sub-01_desc-cape_stat-z_statmap.nii.gz")
    found = np.asarray(image.dataobj)[made.space.labels() > 0]
    assert np.abs(found - z).max() < 1e-5
    assert b"PRIVATE" in image.header["descrip"].tobytes()
    row = files.read_table(private / "map_agreement.tsv")[0]
    assert float(row["C01"]) == pytest.approx(np.corrcoef(z[:, 0], made.A[:, 0])[0, 1], abs=1e-3)
    assert float(row["C01"]) > 0.8


def test_the_second_level_of_nilearn_takes_the_list_of_maps_and_the_files(private, monkeypatch):
    """It refused files of several maps, and users had to take them apart."""
    pandas = pytest.importorskip("pandas")
    second_level = pytest.importorskip("nilearn.glm.second_level")
    monkeypatch.chdir(private)
    listed = pandas.read_csv("second_level.tsv", sep="\t")
    paths = sorted(private.glob("sub-*/func/*_desc-capeC02_*.nii.gz"))
    design = pandas.DataFrame({"intercept": [1] * len(LABELS)})
    ways = {"C02": (listed, "C02"), "files": (list(map(str, paths)), None)}
    found = [
        second_level.SecondLevelModel()
        .fit(given, design_matrix=design)
        .compute_contrast("intercept", first_level_contrast=name, output_type="effect_size")
        .get_fdata()
        for given, name in ways.values()
    ]
    import nibabel

    whole = [
        np.asarray(nibabel.load(f"{label}/func/{label}_desc-cape_stat-z_statmap.nii.gz").dataobj)
        for label in LABELS
    ]
    mean = np.mean(whole, axis=0)[..., 1]
    inside = found[0] != 0
    assert inside.sum() > 20
    assert np.allclose(found[0][inside], mean[inside], atol=1e-5)
    assert np.array_equal(*found)


def test_a_subject_of_smooth_noise_agrees_with_any_smooth_maps() -> None:
    # Two regressions on noise give the maps back that they began with: agreement is no quality.
    rng = np.random.default_rng(5)
    blobs = z_scores(blob_maps(rng, 30, 8, PRESETS["realistic"]))
    smooth = subjects.noise_agreement(lambda w: kernel.smooth_image((30, 30), w), blobs, 120)
    white = subjects.noise_agreement(lambda w: w, blobs, 120)
    assert smooth.shape == (8,)
    assert np.min(smooth) > 0.6
    assert np.max(white) < 0.5
    again = subjects.noise_agreement(lambda w: kernel.smooth_image((30, 30), w), blobs, 120)
    np.testing.assert_array_equal(smooth, again)


def test_the_page_shows_what_smooth_noise_gives_beside_the_subjects(private) -> None:
    (row,) = files.read_table(private / "map_agreement_noise.tsv")
    page = " ".join((private / "index.html").read_text().split())
    assert "smooth noise</th>" in page
    assert f"{float(row['C01']):.2f}</td>" in page
    assert "This is no measure of quality" in page


def test_spectra_find_the_frequency_of_a_sine():
    t = 2.0 * np.arange(200)
    S = np.stack([np.sin(2 * np.pi * 0.0625 * t), np.sin(2 * np.pi * 0.125 * t)])
    found = subjects.spectrum(S.astype(np.float32), 2.0)
    peaks = found.frequency[np.argmax(found.power, axis=1)]
    assert peaks.tolist() == [0.0625, 0.125]
    # Parseval: the density integrates to the variance of a sine of amplitude 1.
    assert found.power[0].sum() * found.frequency[1] == pytest.approx(0.5, rel=0.05)


def test_spectra_of_unknown_tr_are_per_time_point_and_short_courses_do_not_break_them():
    found = subjects.spectrum(np.ones((2, 3), dtype=np.float32), 0.0)
    assert found.frequency.max() <= 0.5
    assert np.all(np.isfinite(found.power))


def test_a_constant_time_course_correlates_with_nothing():
    S = np.stack([np.ones(20), np.arange(20.0)]).astype(np.float32)
    assert subjects.connectivity(S)[0, 1] == 0.0
    assert np.isfinite(subjects.fisher(np.array([1.0, -1.0]))).all()


def test_loadings_and_connectivity_are_tables_that_pandas_reads(private):
    pandas = pytest.importorskip("pandas")
    loadings = pandas.read_csv(private / "loadings.tsv", sep="\t", index_col="subject")
    assert list(loadings.columns) == ["C01", "C02", "C03"]
    for stem, row in loadings.iterrows():
        (path,) = (private / stem).rglob("*_timeseries.tsv")
        courses = pandas.read_csv(path, sep="\t")[["C01", "C02", "C03"]]
        assert np.allclose(row, courses.std(ddof=0), rtol=1e-4)
    fnc = pandas.read_csv(private / "fnc.tsv", sep="\t", index_col="subject")
    assert list(fnc.columns) == ["C01-C02", "C01-C03", "C02-C03"]
    assert list(fnc.index) == list(loadings.index)


@pytest.mark.usefixtures("_no_pictures")
def test_a_row_of_the_table_of_connectivity_is_a_vector_of_nilearn(tmp_path):
    # Of 3 components both triangles have one order: of 4 the table was one that nilearn took apart.
    pandas, nilearn = pytest.importorskip("pandas"), pytest.importorskip("nilearn.connectome")
    private = written(tmp_path, example.outcome(FeatureSpace.of_matrix(40), rank=4))
    rows = pandas.read_csv(private / "fnc.tsv", sep="\t", index_col="subject")
    assert list(rows.columns)[2:4] == ["C02-C03", "C01-C04"]
    z = nilearn.vec_to_sym_matrix(rows.to_numpy(), diagonal=np.zeros((len(rows), 4)))
    wanted = [np.corrcoef(S.astype(float)) - np.eye(4) for S in example.time_courses(4, 3)]
    assert np.allclose(np.tanh(z), wanted, atol=1e-4)


def test_the_page_shows_every_chapter_with_pictures(private):
    page = (private / "index.html").read_text()
    for title in ("Subjects", "Checks", "Clipping", "Time courses", "connectivity",
                  "Maps of single subjects", "What left this site", "Ledger of this site",
                  "Handling"):  # fmt: skip
        assert f"{title}</h2>" in page, title
    # Scans of all subjects, 3 time courses, 2 of connectivity, agreement, 3 sheets of maps
    assert page.count("<img ") == 10
    assert "Scans of 3 subjects: tSNR 40 to 42, median 41, worst sub-01" in page
    assert "sub-99" in page
    assert len(page) < 3_000_000


def test_the_page_begins_with_who_took_part_and_with_maps_as_that_of_the_consortium(private):
    """It began with a row of five figures and a chart of coverage."""
    page = (private / "index.html").read_text()
    assert "<h1>3 of 4 people count (1: a subject is constant).</h1>" in page
    first = page.partition("<section")[0]
    assert '<a href="#checks">Checks</a> says why' in first
    assert "was charged here" in first
    titles = re.findall("<h2>(.*?)</h2>", page)
    assert titles[0] == "Maps of single subjects"
    assert titles.index("Subjects") < titles.index("What left this site")


def test_a_page_made_again_without_a_person_does_not_say_that_all_took_part(private, tmp_path):
    """It said "40 of 40 people count", and below "39 of 39 subjects took part"."""
    shutil.copytree(private, tmp_path / "private")
    table = tmp_path / "private" / "subjects.tsv"
    table.write_text("\n".join(table.read_text().splitlines()[:-1]) + "\n")
    (made,) = cape.report.rebuild(tmp_path / "private")
    page = made.read_text()
    assert "3 subjects; of 1 more who were in the run all rows were deleted" in page
    assert "took part." not in page


def test_a_limit_that_is_not_set_is_called_none_and_not_0_or_minus_1(tmp_path):
    # A policy without limits was shown as a limit of 0.0 and "simulation_seed -1".
    made = example.outcome()
    policy = {**dataclasses.asdict(SitePolicy.of_simulation(max_delta=1e-6)), "digest": "c0ffee"}
    inside = dataclasses.replace(example.inside(made, ()), policy=policy)
    cape.report.write_site(tmp_path, example.site_outcome(made, ()), inside)
    page = (tmp_path / "private" / "index.html").read_text()
    shown = dict(re.findall('<tr><th scope="row">([a-z_]+)</th><td[^>]*>([^<]*)</td></tr>', page))
    assert set(shown) >= set(policy)
    limits = ("max_run", "max_sites", "max_total", "max_features", "simulation_seed")
    assert {shown[name] for name in (*limits, "ledger_file")} == {"none"}
    assert (shown["max_delta"], shown["min_subjects"]) == ("1e-06", "1")
    assert shown["allow_computations"] == "any"
    shipped = {**dataclasses.asdict(SitePolicy()), "digest": "c0ffee"}
    inside = dataclasses.replace(example.inside(made, ()), policy=shipped)
    cape.report.write_site(tmp_path, example.site_outcome(made, ()), inside)
    assert "epsilon 8.0 at delta 1e-05" in (tmp_path / "private" / "index.html").read_text()
    assert (shown["min_assumed_colluders"], shown["veto"]) == ("0", "false")


@pytest.mark.usefixtures("_no_pictures")
def test_files_that_cannot_be_read_again_cost_maps_but_not_the_rest(tmp_path):
    made = example.outcome()
    known = example.inside(made, LABELS)

    def broken():
        yield from list(known.voxels())[:1]

    site = example.site_outcome(made, LABELS)
    cape.report.write_site(tmp_path, site, dataclasses.replace(known, voxels=broken))
    private = tmp_path / "private"
    assert len(list(private.rglob("sub-*_desc-cape_stat-z_statmap.nii.gz"))) == 1
    assert len(list(private.rglob("sub-*_timeseries.tsv"))) == 3
    assert "2 subjects have no maps" in (private / "index.html").read_text()


@pytest.mark.usefixtures("_no_pictures")
def test_the_page_of_a_site_of_which_nobody_passes_says_so(tmp_path):
    made = example.outcome()
    known = example.inside(made, LABELS)
    failed = {subject.label: subject.files for subject in known.subjects}
    counted = CountedPeople(listed=len(failed), counted=0, why={"a subject is constant": 3})
    nobody = dataclasses.replace(
        known, subjects=(), failed=failed, counted=counted, voxels=lambda: iter(())
    )
    site = dataclasses.replace(example.site_outcome(made, LABELS), time_courses=iter(()))
    cape.report.write_site(tmp_path, site, nobody)
    page = " ".join((tmp_path / "private" / "index.html").read_text().split())
    assert f"NOBODY OF THIS SITE TOOK PART: all {len(failed)} people that it lists fail" in page
    assert "NOBODY" not in (written(tmp_path / "other") / "index.html").read_text()


@pytest.mark.usefixtures("_no_pictures")
def test_the_page_says_whom_the_site_met_first_and_what_hung_on_them(tmp_path):
    made = example.outcome()

    def page(name: str, **changed) -> str:
        site = dataclasses.replace(example.site_outcome(made, LABELS), **changed)
        cape.report.write_site(tmp_path / name, site, example.inside(made, LABELS))
        return " ".join((tmp_path / name / "private" / "index.html").read_text().split())

    two = page("two", first_contacts=("B <i>", "C"), epsilon_if_invented=2.34567)
    assert "by keys that only the aggregator vouched for: B &lt;i&gt;, C." in two
    delta = f"{made.ledger.budget.delta:g}"
    assert f"the epsilon of this site's people is 2.346 at delta {delta}. Ask" in two
    assert "If it invented them, the noise was smaller" in two
    one = page("one", first_contacts=("B",), epsilon_if_invented=None)
    assert "vouched for: B. Ask there, not through the aggregator" in one
    assert "No site was met for the first time in this run" in page("none", first_contacts=())
    other = page("other")  # of a run with pinned or relayed keys
    assert "first time" not in other
    assert "invented" not in other


@pytest.mark.usefixtures("_no_pictures")
def test_files_of_an_earlier_run_do_not_stay(tmp_path):
    private = written(tmp_path, labels=("sub-01", "sub-77"))
    assert list(private.glob("sub-77/func/*_statmap.nii.gz"))
    written(tmp_path)
    assert not list(private.glob("sub-77*"))


@pytest.mark.usefixtures("_no_pictures")
def test_all_pages_of_a_simulation_are_built_again_from_their_files(tmp_path):
    made, new = (
        example.outcome(FeatureSpace.of_matrix(40)),
        tmp_path.parent / f"{tmp_path.name}-new",
    )
    cape.report.write_results(tmp_path / "consortium", made)
    private = written(tmp_path / "local0", made)
    pages = [tmp_path / "consortium" / "index.html", private / "index.html"]
    before = [page.read_bytes() for page in pages]
    for page in pages:
        page.unlink()
    assert cape.report.rebuild(tmp_path) == pages
    assert [page.read_bytes() for page in pages] == before
    assert cape.report.rebuild(tmp_path / "local0") == [pages[1]]
    assert cape.report.rebuild(private) == [pages[1]]
    # Results that may not be written to get their pages in a copy.
    for page in pages:
        page.chmod(0o444)
    for code in (0, 2):  # and never over another
        assert main(["report", str(tmp_path), "--out", str(new)]) == code
        copies = [new / page.relative_to(tmp_path) for page in pages]
        assert [page.read_bytes() for page in copies] == before


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="CAPE-E274"):
        cape.report.rebuild(tmp_path)


def test_the_closing_reply_is_added_only_where_a_list_is_kept(private, tmp_path):
    cape.report.append_sent(tmp_path, {"seq": 47})
    assert not list(tmp_path.iterdir())
    before = (private / "sent.jsonl").read_text()
    cape.report.append_sent(private, {"seq": 47})
    assert (private / "sent.jsonl").read_text() == before + '{"seq": 47}\n'
    (private / "sent.jsonl").write_text(before)


@pytest.mark.usefixtures("_no_pictures")
def test_connectivity_is_ordered_by_network_and_only_maps_with_a_name_have_one(tmp_path):
    from cape.report import labels

    space = example.brain()
    values = labels.bundled(space).values
    noise = np.random.default_rng(0).standard_normal((space.n_features, 1))
    A = np.c_[values[:, 12], noise, values[:, 2]]  # visual, nothing, default mode
    made = example.outcome(space, A=A)
    private = written(tmp_path / "a", made)
    about = files.read_json(private / "site.json")
    assert about["networks"] == ["visual", "", "default mode"]
    page = (private / "index.html").read_text()
    assert "default mode C03; visual C01; no network C02." in page
    # What nothing was found in gets no names here either.
    private = written(tmp_path / "b", dataclasses.replace(made, status="nothing_found"))
    assert files.read_json(private / "site.json")["networks"] == []
    page = (private / "index.html").read_text()
    assert "Ordered by the nearest" not in page
    assert "default mode" not in page


def test_a_comparison_shows_a_site_its_own_people_and_who_lacks_a_value(tmp_path):
    made = example.outcome()
    header = ("subject", "asked", "dx", "hippocampus")
    rows = (
        ("sub-3", "no", None, 12.5),
        ("sub-2", "yes", "control", None),
        ("sub-1", "yes", "SZ", 61.0),
    )
    table = Table(name="people", title="", note="", header=header, rows=rows)
    asked = {"variables": "dx control/SZ", "formula": "dx", "outcomes": "hippocampus 1:99",
             "public": "dx"}  # fmt: skip
    site = SiteOutcome(
        site="local0", outcome_status="done", names=(), time_courses=iter(()), ledger=made.ledger,
        people=lambda: table, settings=asked,
    )  # fmt: skip
    facts = cape.report.PrivateSummary(failed={f"sub-{k}": () for k in (1, 2, 3)})
    cape.report.write_site(tmp_path, site, facts)
    private = tmp_path / "private"
    assert (private / "people.tsv").read_text().splitlines()[2] == "sub-2\tyes\tcontrol\tn/a"
    # Joined by position they were another's: subjects stand in their order, people were shuffled.
    subjects = [row["label"] for row in files.read_table(private / "subjects.tsv")]
    assert [row["subject"] for row in files.read_table(private / "people.tsv")] == subjects
    page = " ".join(re.sub(r"<[a-z/][^>]*>", " ", (private / "index.html").read_text()).split())
    assert "listed here 3 asked: of the groups that the question names 2 of these with" in page
    assert "they are in the sums 1" in page
    assert "2 add zeros alone: sub-2, sub-3." in page
    assert "hippocampus outcome 1" in page
    # Each comparison of tables said so, because no series were read.
    assert "NOBODY" not in page
    assert "no results for single" not in page
    cape.report.write_site(tmp_path / "none", dataclasses.replace(site, people=None))
    chapter = "Who entered the comparison"
    assert chapter not in (tmp_path / "none/private/index.html").read_text()
    empty = dataclasses.replace(table, rows=())
    cape.report.write_site(tmp_path / "nobody", dataclasses.replace(site, people=lambda: empty))
    assert chapter in (tmp_path / "nobody/private/index.html").read_text()
