"""A study of two groups in images: what is planted is there, and tables say who is who."""

import csv

import numpy as np

from cape.algorithms.person_outcomes import edges
from cape.lab.synthetic.compared import draw_two_groups
from cape.lab.synthetic.consortium import Request, write_consortium

NETWORKS = ("a", "b", "c", "d", "e", "f")


def test_groups_differ_in_the_planted_edges_alone_once_covariates_are_taken_out() -> None:
    people = draw_two_groups(NETWORKS, (0,) * 3000 + (1,) * 2000, seed=3)
    i, j = np.triu_indices(6, 1)
    z = np.arctanh(people.correlations[:, i, j])
    x = [people.patient, people.age, people.female, people.fd, np.ones(5000)]
    found = np.linalg.lstsq(np.stack(x, axis=1), z, rcond=None)[0][0]
    np.testing.assert_allclose(found, people.effect, atol=0.02)
    assert 0.1 < (people.effect < 0).mean() < 0.5
    assert np.linalg.eigvalsh(people.correlations).min() > 0
    # what a comparison has to adjust for
    fd = [people.fd[people.patient == k].mean() for k in (0, 1)]
    assert fd[1] > 1.2 * fd[0]


def test_courses_have_the_connectivity_of_their_person() -> None:
    people = draw_two_groups(NETWORKS, (0,) * 4, seed=1)
    white = np.random.default_rng(0).standard_normal((6, 20000)).astype(np.float32)
    i, j = np.triu_indices(6, 1)
    wanted = np.arctanh(people.correlations[2][i, j])
    np.testing.assert_allclose(edges(people.mixed(2, white)), wanted, atol=0.05)


def test_every_site_has_a_table_that_its_settings_can_read(tmp_path) -> None:
    request = Request(preset="groups", n_sites=2, n_subjects=8, n_timepoints=20, n_networks=3)
    summary = write_consortium(tmp_path / "study", request)
    seen = []
    for k, size in enumerate(summary.site_sizes):
        with (tmp_path / "study" / f"local{k}" / "participants.tsv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        assert len(rows) == size
        seen += [row["participant_id"] for row in rows]
        for row in rows:
            assert row["dx"] in ("control", "patient")
            assert row["sex"] in ("female", "male")
            assert 18 <= float(row["age"]) <= 90
            assert 0 < float(row["fd_mean"]) <= 0.5
    assert seen == [f"sub-{m:03d}" for m in range(1, 9)]
    with np.load(tmp_path / "study" / "truth.npz") as truth:
        assert truth["edges"].tolist()[0] == "default-mode - visual"
        assert truth["effect"].shape == (3,)
