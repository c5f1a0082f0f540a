"""Which column of a table of series is which parcel of the atlas.

Belongs to `cape/data/reading.py`.
"""

from pathlib import Path

import numpy as np
import pytest

from cape.data.issues import UnusableFile
from cape.data.matrices import read_matrix
from cape.data.reading import in_order_of_labels
from cape.data.runs import SiteRun
from cape.space.feature_space import FeatureSpace

LABELS = np.array([0, 2001, 2002, 2005], dtype=np.int32).reshape(2, 2, 1)
SPACE = FeatureSpace.of_labels("atlas", LABELS, np.eye(4), "MNI152")
VALUES = np.array([[1.0, 2.0, 5.0], [1.5, 2.5, 5.5]])  # (T, D), by rising label


def read(folder: Path, text: str) -> np.ndarray:
    path = folder / "sub-1.csv"
    path.write_text(text)
    run = SiteRun(path=path, name=path.name)
    return in_order_of_labels(read_matrix(run, "time_by_feature"), SPACE, run).values


def table(names: tuple[str, ...], columns: list[int]) -> str:
    rows = [",".join(str(row[k]) for k in columns) for row in VALUES]
    return "\n".join([",".join(names), *rows]) + "\n"


def test_columns_are_found_by_number_or_by_the_name_in_the_label_table(tmp_path) -> None:
    """Whatever their order: two sites may have written them in two."""
    np.testing.assert_array_equal(
        read(tmp_path, table(("2001", "2002", "2005"), [0, 1, 2])), VALUES.T
    )
    marked = table(("#2005", "#2001", "#2002"), [2, 0, 1])
    np.testing.assert_array_equal(read(tmp_path, marked), VALUES.T)
    (tmp_path / "atlas.tsv").write_text(
        "index\tname\n2005\tRectus\n2001\tFrontal_L\n2002\tFrontal_R\n"
    )
    named = table(("frontal_r", "Rectus", "Frontal_L"), [1, 2, 0])
    np.testing.assert_array_equal(read(tmp_path, named), VALUES.T)


def test_what_is_not_told_is_not_guessed(tmp_path) -> None:
    named = table(("Frontal_R", "Rectus", "Frontal_L"), [1, 2, 0])
    with pytest.raises(UnusableFile) as refused:
        read(tmp_path, named)
    assert refused.value.issue.observed == "3 columns such as 'Frontal_R'"
    assert "there is no atlas.tsv" in str(refused.value.issue.values["wanted"])
    (tmp_path / "atlas.tsv").write_text("index\tname\n2005\tRectus\n2001\tFrontal_L\n2002\tOther\n")
    with pytest.raises(UnusableFile) as refused:
        read(tmp_path, named)
    assert refused.value.issue.observed == "no column of label 2002 (1 of 3)"
    with pytest.raises(UnusableFile):
        read(tmp_path, table(("2001", "2002", "2006"), [0, 1, 2]))


def test_without_names_there_must_be_as_many_columns_as_parcels(tmp_path) -> None:
    path = tmp_path / "sub-1.npy"
    for width, fits in ((3, True), (2, False), (4, False)):
        np.save(path, np.ones((5, width)))
        run = SiteRun(path=path, name=path.name)
        series = read_matrix(run, "time_by_feature")
        if fits:
            assert in_order_of_labels(series, SPACE, run).values.shape == (3, 5)
        else:
            with pytest.raises(UnusableFile):
                in_order_of_labels(series, SPACE, run)
