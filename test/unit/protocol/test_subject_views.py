"""Volumes of a moved head are left out of temporal rounds."""

import tracemalloc

import numpy as np

from cape.algorithms.pca import leading_projector
from cape.protocol.ports import Stacks, View
from cape.protocol.secure_sum import chunks, stacks_behind
from cape.protocol.subject_views import SPIKE, map_subjects, unit_trace, without_spikes
from presets import study_of


def test_a_volume_far_above_the_median_counts_as_the_mean() -> None:
    rng = np.random.default_rng(5)
    Y = unit_trace(rng.standard_normal((40, 120)))
    assert without_spikes(Y) is Y  # nothing stands out: not a bit moves
    spiked = Y.copy()
    spiked[:, [7, 90]] *= 1.5 * SPIKE
    kept = without_spikes(unit_trace(spiked))
    others = np.delete(np.arange(120), [7, 90])
    # Its time mean is taken away again, and it has trace 1 like any subject.
    assert np.allclose(kept.mean(axis=1), 0.0, atol=1e-6)
    assert np.isclose(np.sum(kept.astype(float) ** 2) / 120, 1.0, atol=1e-5)
    assert np.allclose(kept[:, 7], kept[:, 90])
    assert np.corrcoef(kept[:, others].ravel(), Y[:, others].ravel())[0, 1] > 0.999


def test_subjects_without_a_typical_volume_are_left_alone() -> None:
    still = np.zeros((4, 30), dtype=np.float32)
    still[:, 3] = 1.0
    assert without_spikes(still) is still
    assert without_spikes(np.zeros((4, 0), dtype=np.float32)).shape == (4, 0)


def test_spikes_take_no_direction_of_the_common_subspace() -> None:
    """Without the rule .73 of the weakest of 20 directions was kept, and 4 networks lost once."""
    study = study_of("spikes", n_subjects=16, seed=9471)
    truth = np.linalg.qr(study.B.T @ study.A)[0]
    subjects = [unit_trace(Y) for Y in study.subjects()]

    def least(projectors: list[np.ndarray]) -> float:
        V = np.linalg.eigh(np.mean(projectors, axis=0))[1][:, -20:]
        return float(np.linalg.svd(V.T @ truth)[1][-1] ** 2)

    assert least([leading_projector(without_spikes(Y), 20) for Y in subjects]) > 0.98
    assert least([leading_projector(Y, 20) for Y in subjects]) < 0.9


def stacks(n: int) -> Stacks:
    rng = np.random.default_rng(3)
    one, two = rng.standard_normal((n, 30, 90)), rng.standard_normal((2, 30, 40))
    arrays = (one.astype(np.float32), two.astype(np.float32))
    return Stacks(arrays=arrays, labels=(tuple(f"{m}" for m in range(n)), ("a", "b")))


def test_every_subject_is_what_it_is_alone() -> None:
    given = stacks(7)
    found = map_subjects(given, unit_trace)
    assert found.labels == given.labels
    for before, after in zip(given.arrays, found.arrays, strict=True):
        assert after.dtype == np.float32
        assert after.flags.c_contiguous
        np.testing.assert_array_equal(after, np.stack([unit_trace(Y) for Y in before]))


def test_results_are_not_held_twice() -> None:
    given = stacks(300)
    size = sum(array.nbytes for array in given.arrays)
    tracemalloc.start()
    try:
        map_subjects(given, unit_trace)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.2 * size


def test_a_view_makes_of_every_subject_what_a_stack_of_all_would_hold() -> None:
    """Bit for bit, chunk by chunk, so that no site holds its data twice."""
    seen = View(stacks=stacks(70), one=lambda Y: without_spikes(unit_trace(Y[:2])))
    whole = map_subjects(seen.stacks, seen.one)
    parts = list(chunks(seen))
    assert [len(part) for part in parts] == [32, 32, 6, 2]
    assert np.concatenate(parts[:3]).tobytes() == whole.arrays[0].tobytes()
    assert parts[3].tobytes() == whole.arrays[1].tobytes()
    after = map_subjects(seen, lambda Y: 2 * Y)
    assert after.labels == seen.stacks.labels
    assert [a.tobytes() for a in after.arrays] == [(2 * a).tobytes() for a in whole.arrays]
    assert stacks_behind(seen) is seen.stacks
