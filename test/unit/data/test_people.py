"""Whose a file is, by its name."""

from __future__ import annotations

from cape.data.people import natural_key, subject_of


def test_subjects_and_order_follow_the_names():
    assert subject_of("sub-A1_task-rest_bold.nii.gz") == "sub-A1"
    assert subject_of("sub-A1/func/rest.nii") == "sub-A1"
    assert subject_of("ann.nii.gz") == "ann"
    assert subject_of("ann.v2.npy") == "ann.v2"
    assert sorted(["b10", "b9", "B1", "b"], key=natural_key) == ["b", "B1", "b9", "b10"]
    assert sorted(["b", "2", "a", "10"], key=natural_key) == ["2", "10", "a", "b"]
