"""Maps of synthetic studies, as many as find room.

Belongs to `cape/lab/synthetic/generators.py`.
"""

import numpy as np
import pytest

from cape.errors import ConfigError
from cape.lab.synthetic import generators
from cape.lab.synthetic.generators import PRESETS


class Counted:
    """A generator that counts the maps that are drawn."""

    def __init__(self, seed: int) -> None:
        self.rng, self.maps = np.random.default_rng(seed), 0

    def integers(self, *given: int) -> int:
        self.maps += 1
        return int(self.rng.integers(*given))

    def uniform(self, *given: float) -> np.ndarray:
        return self.rng.uniform(*given)


def test_more_maps_than_find_room_end_in_a_sentence(monkeypatch) -> None:
    """30 maps of `paper` were drawn for ever: a study of 30 networks never ended."""
    monkeypatch.setattr(generators, "LISTS", 3)
    counted = Counted(1)
    with pytest.raises(ConfigError, match="n_networks"):
        generators.blob_maps(counted, 30, 30, PRESETS["paper"])
    assert counted.maps == 3 * generators.TRIES
    made = generators.blob_maps(np.random.default_rng(1), 30, 20, PRESETS["paper"])
    assert made.shape == (900, 20)
