"""The data set of single people: names, runs apart, a row for every volume of a file."""

import json
from pathlib import Path

import numpy as np
import pytest

from cape.data.bids import names_of_runs
from cape.data.runs import SiteRun
from cape.report import derivatives
from cape.report.derivatives import RunFacts
from cape.settings.config import Config
from cape.site.policy import SitePolicy
from cape.site.site_data import FileSource

NAMES = ("C01", "C02")


def run(session: str = "", run: str = "") -> SiteRun:
    return SiteRun(path=Path("x"), name="x", session=session, run=run)


def test_runs_stay_apart_and_volumes_that_are_left_out_have_a_row(tmp_path):
    # Joined courses lose where a run ends, which volume a row is, and which ones scrubbing took.
    pandas = pytest.importorskip("pandas")
    courses = np.arange(10, dtype=np.float32).reshape(2, 5)
    runs = [
        RunFacts(session="ses-1", entities="task-rest", tr=2.0, n_volumes=4, left_out=(0, 2)),
        RunFacts(session="ses-2", entities="task-rest", n_volumes=5, left_out=(1,)),
    ]
    derivatives.begin_dataset(tmp_path)
    derivatives.write_courses(tmp_path, "sub-A", NAMES, courses, runs)
    places = [
        f"sub-A/ses-{k}/func/sub-A_ses-{k}_task-rest_desc-cape_timeseries.tsv" for k in (1, 2)
    ]
    first, second = (pandas.read_csv(tmp_path / place, sep="\t") for place in places)
    assert first["time"].tolist() == [0.0, 2.0, 4.0, 6.0]
    assert first["censored"].tolist() == [1, 0, 1, 0]
    assert first["C01"].isna().tolist() == [True, False, True, False]
    assert first["C02"].dropna().tolist() == [5.0, 6.0]
    # A repetition time is not invented; the last volume is beyond max_timepoints.
    assert second["time"].isna().all()
    assert second["censored"].tolist() == [0, 1, 0, 0, 1]
    assert second["C01"].dropna().tolist() == [2.0, 3.0, 4.0]
    assert np.array_equal(derivatives.read_courses(tmp_path, "sub-A", NAMES), courses)


def test_the_data_set_says_who_made_it_and_forgets_people_of_an_earlier_run(tmp_path):
    (tmp_path / "sub-gone" / "func").mkdir(parents=True)
    derivatives.begin_dataset(tmp_path)
    about = json.loads((tmp_path / "dataset_description.json").read_text())
    assert about["DatasetType"] == "derivative"
    assert about["GeneratedBy"][0]["Name"] == "coinstac-cape"
    assert not list(tmp_path.glob("sub-*"))


def test_a_run_ten_comes_after_run_two(tmp_path):
    runs = [RunFacts(entities=f"run-{k}", n_volumes=1) for k in (1, 2, 10)]
    courses = np.array([[1, 2, 3]], dtype=np.float32)
    derivatives.write_courses(tmp_path, "sub-1", ("C01",), courses, runs)
    assert derivatives.read_courses(tmp_path, "sub-1", ("C01",)).tolist() == [[1, 2, 3]]


def test_labels_become_letters_and_digits_and_stay_apart():
    taken: list[str] = []
    for label in ("sub-01", "north sub-01", "0-1", "../x", "", "sub-01"):
        taken.append(derivatives.stem_of(label, taken))
    assert taken == ["sub-01", "sub-north01", "sub-01n2", "sub-x", "sub-unnamed", "sub-01n3"]


def test_runs_are_called_as_names_and_lists_call_them_else_numbered():
    assert names_of_runs([run("1", "run-2_task-rest_folder-x"), run("2", "1")]) == [
        ("ses-1", "task-rest_run-2"),
        ("ses-2", "run-1"),
    ]
    assert names_of_runs([run()]) == [("", "")]
    twice = [run("pre-1", "task-a_run-3"), run("pre1", "task-a_run-3"), run()]
    assert names_of_runs(twice) == [
        ("ses-pre1", "task-a_run-1"),
        ("ses-pre1", "task-a_run-2"),
        ("", "run-3"),
    ]


def test_the_facts_of_a_site_tell_its_runs(tmp_path):
    rows = "participant_id,session,run,file\n1,b,1,x.npy\n1,a,1,y.npy\n"
    (tmp_path / "manifest.csv").write_text(rows)
    for k, name in enumerate(("x", "y")):
        values = np.random.default_rng(k).standard_normal((6, 40 + k)).astype(np.float32)
        np.save(tmp_path / f"{name}.npy", values)
    config = Config(
        epsilon=8.0, delta=1e-5, feature_space="matrix", drop_first_volumes=2, min_timepoints=20,
        orientation="feature_by_time",
        n_features=6,
    )  # fmt: skip
    source = FileSource(tmp_path, {"manifest": "manifest.csv"}, config, "B")
    (person,) = source.private_summary(SitePolicy(), []).subjects
    assert [(r.session, r.entities, r.n_volumes, r.left_out) for r in person.runs] == [
        ("ses-a", "run-1", 41, (0, 1)),
        ("ses-b", "run-1", 40, (0, 1)),
    ]
