"""No joint ICA has a setting that nothing of it reads.

Belongs to `cape/computations/__init__.py`.
"""

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from cape.computations import load
from cape.computations.ica.mirror import mirror_of
from cape.computations.ica.settings import SpatialConfig
from cape.data.space import mask_space
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace
from support.consortium import Consortium

ATLAS = FeatureSpace.of_labels(
    "atlas",
    np.roll(np.arange(60) % 13, 5).astype(np.int32).reshape(5, 4, 3),
    np.diag([4.0, 4.0, 4.0, 1.0]),
)
OF_ATLAS = {"feature_space": "atlas", "atlas": "atlas.nii.gz", "label_pairs": "1-2,3-4"}
RUNS: dict[str, list[dict[str, object]]] = {
    "capedjica": [{}, OF_ATLAS],
    "paperdjica": [
        {"whitening": "eigen"},
        {"clip": "subject"},
        {"solver": "quasi-newton"},
        {**OF_ATLAS, "pca": "projector"},
    ],
    "capegica": [{}, OF_ATLAS],
    "capedualreg": [{}],
}


@contextmanager
def reads_of(kind: type[Config], monkeypatch: Any) -> Iterator[set[str]]:
    """Gather the names of settings that are read for what they say."""
    # Not what reads all of them alike: comparison and hash of a record, the list of all settings.
    seen: set[str] = set()
    alike = ("settings", "of", "<dictcomp>", "equal", "hashed")
    resolve.cache_clear()
    mirror_of.cache_clear()

    def watched(config: Config, name: str) -> Any:
        if sys._getframe(1).f_code.co_name not in alike:
            seen.add(name)
        return object.__getattribute__(config, name)

    with monkeypatch.context() as patch:
        # The free set of a temporal run reads its settings as those of the spatial recipe.
        for one in (kind, SpatialConfig):
            patch.setattr(one, "__getattribute__", watched, raising=False)
        yield seen


@pytest.mark.parametrize("name", RUNS)
def test_every_setting_of_a_joint_ica_is_read_by_its_runs(name, monkeypatch) -> None:
    kind = load(name).config
    general = dataclasses.fields(Config)
    own = {spec.name for spec in dataclasses.fields(kind) if spec not in general}
    found: set[str] = set()
    for chosen in RUNS[name]:
        # A budget of its own: what other tests worked out for equal settings is not asked again.
        run = Consortium(name, epsilon=97.3, **chosen)
        if OF_ATLAS.items() <= chosen.items():
            for party in run.parties.values():
                party.source.space = ATLAS
        with reads_of(kind, monkeypatch) as seen:
            run.play()
        found |= seen
    if "midline_x" in own:  # of images alone
        config = kind.from_input({"epsilon": 97.3, "delta": 1e-5, "mask": "MNI152-10mm"})
        with reads_of(kind, monkeypatch) as seen:
            recipe = SpatialConfig.of(config, n_basis=40)
            mirror_of.__wrapped__(recipe, mask_space(recipe), 40)
        found |= seen
    assert own - found == set()


def test_what_only_rounds_need_is_a_setting_of_the_temporal_model_alone() -> None:
    names = {name: {spec.name for spec in dataclasses.fields(load(name).config)} for name in RUNS}
    of_rounds = {"n_looks", "n_rounds", "prewhiten", "score", "shares", "clip_schedule"}
    assert of_rounds <= names["capedjica"] < names["paperdjica"]
    printed = {"pca", "covariance_clip", "whitening", "solver", "clip", "subject_clip",
               "gradient_clip", "bias_clip", "learning_rate"}  # fmt: skip
    assert names["paperdjica"] - names["capedjica"] == printed
    assert of_rounds.isdisjoint(names["capegica"] | names["capedualreg"])
    assert names["capegica"] - names["capedualreg"] == {"symmetry", "midline_x", "label_pairs"}
