import numpy as np

from cape.algorithms.estimators import clip_rows


def test_clipping_scales_long_rows_and_leaves_short_ones() -> None:
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    np.testing.assert_allclose(clip_rows(rows, 1.0), [[0.6, 0.8], [0.3, 0.4], [0, 0]])


def test_clipping_survives_extreme_numbers_and_drops_what_is_not_finite() -> None:
    rows = np.array([[1e300, 1e300], [1e-300, 0.0], [np.nan, 1.0], [np.inf, 1.0], [5e-324, 0.0]])
    clipped = clip_rows(rows, 2.0)
    np.testing.assert_allclose(clipped[0], [np.sqrt(2.0)] * 2)
    np.testing.assert_array_equal(clipped[1], rows[1])
    np.testing.assert_array_equal(clipped[2:4], np.zeros((2, 2)))
    np.testing.assert_array_equal(clipped[4], rows[4])


def test_clipping_a_row_does_not_depend_on_its_neighbours() -> None:
    rows = np.random.default_rng(5).standard_normal((9, 413))
    together = clip_rows(rows, 1.5)
    alone = np.concatenate([clip_rows(row[None], 1.5) for row in rows])
    np.testing.assert_array_equal(together, alone)
