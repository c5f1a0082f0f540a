"""Entries of one name are the same bytes, whatever settings wrote them.

Over every field of the settings of every computation: another reduced array, another name.
Belongs to `cape/data/kept_subjects.py`.
"""

import dataclasses
import itertools
import random
import typing
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

import cape.computations
from cape import array_file
from cape.data.data_store import DataStore
from cape.data.kept_subjects import KeptSubjects
from cape.data.pipeline import load_site
from cape.errors import CapeError
from cape.settings.config import Config
from cape.settings.option import choices
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace

AFFINE = np.diag([8.0, 8, 8, 1])
BASE: dict[str, object] = {
    "epsilon": 1.0, "delta": 1e-5, "feature_space": "mask", "mask": "file", "n_basis": 6,
    "min_timepoints": 25,
}  # fmt: skip
# Values of texts and numbers that a random one would not be.
WORDS: dict[str, tuple[object, ...]] = {
    "mask": ("file", "mask.nii.gz"),
    "atlas": ("atlas.nii.gz",),
    "space": ("MNI152",),
    "confounds": ("csf", "csf,motion"),
    "confound_strategy": (),  # nilearn's: `test_strategies`
    "bids_filter": ("task-rest",),
    "n_basis": (0, 5, 9),
    "max_features": (7, 11),
    "n_components": (3, 4),
    "smoothing_fwhm": (6.0, 12.0),
    "drop_first_volumes": (1, 2),
    "max_timepoints": (26, 27),
    "tr": (1.0, 2.0),
    "high_pass": (0.02, 0.03),
    "low_pass": (0.1, 0.12),
    "min_timepoints": (24, 26),
    "min_minutes": (0.1,),
    "max_mean_fd": (0.5,),
    "midline_x": ("0", "4"),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    inside = np.ones((6, 6, 5), dtype=np.uint8)
    inside[0, 0] = 0
    nib.Nifti1Image(inside, AFFINE).to_filename(folder / "mask.nii.gz")
    labels = np.arange(180).reshape(6, 6, 5) // 9 + 1
    nib.Nifti1Image(labels.astype(np.int16), AFFINE).to_filename(folder / "atlas.nii.gz")
    rng = np.random.default_rng(8)
    for m in range(2):
        values = rng.normal(900, 30, (6, 6, 5, 30)) + 3 * np.arange(30) + 20 * m
        image = nib.Nifti1Image(values.astype(np.float32), AFFINE)
        image.header.set_xyzt_units("mm", "sec")
        image.header["pixdim"][4] = 2.0
        image.to_filename(folder / f"sub-{m}_bold.nii.gz")
        rows = rng.standard_normal((30, 3))
        lines = ["csf\tmotion\tframewise_displacement"]
        lines += ["\t".join(f"{v:.4f}" for v in row) for row in rows]
        (folder / f"sub-{m}_desc-confounds_timeseries.tsv").write_text("\n".join(lines) + "\n")
    return folder


def values_of(spec: dataclasses.Field, hint: object) -> tuple[object, ...]:
    if spec.name in WORDS:
        return WORDS[spec.name]
    if words := choices(hint):
        return words
    if hint is bool:
        return (True, False)
    if hint is str:
        return ()
    default = 0 if spec.default is dataclasses.MISSING else spec.default
    return (default + 1, spec.metadata["high"] or default + 2)


def variants(kind: type[Config], turn: int) -> list[dict[str, object]]:
    """Every value of every own field alone, and a quarter of the rest: `turn` says which.

    The rest are fields of all computations, bases, and pairs that are drawn: four computations
    that follow each other try all of them.
    """
    hints = typing.get_type_hints(kind)
    common = {spec.name for spec in dataclasses.fields(Config)}
    own, each = [], []
    for spec in dataclasses.fields(kind):
        values = values_of(spec, hints[spec.name])
        (each if spec.name in common else own).extend({spec.name: value} for value in values)
    # Words that are resolved by other settings, with all of those.
    resolved = [
        dict(zip(("basis", "detrend", "standardize", "global_signal"), words, strict=True))
        for words in itertools.product(
            ("auto", "dct", "kernel", "none"), ("auto", "none"), ("auto", "floored"), ("auto",)
        )
    ]
    drawn = random.Random(5)
    pairs = [drawn.choice([*own, *each]) | drawn.choice([*own, *each]) for _ in range(60)]
    return [{}, *own, *[*each, *resolved, *pairs][turn % 4 :: 4]]


@pytest.mark.long
def test_another_reduced_array_has_another_name(base, tmp_path, monkeypatch):
    monkeypatch.setattr(array_file, "SETTLED", -10.0)
    contents: dict[str, bytes] = {}
    n_entries = dict.fromkeys(cape.computations.names(), 0)
    for turn, name in enumerate(n_entries):
        kind = cape.computations.load(name).config
        for i, chosen in enumerate(variants(kind, turn)):
            private = (
                {"private": False} if kind.__dataclass_fields__["private"].default is False else {}
            )
            try:
                config = kind.from_input({**BASE, **private, **chosen})
                store = DataStore.open(tmp_path / f"{name}-{i}")
                load_site(base, {}, config, site="B", store=store)
            except CapeError:
                continue
            for path in (tmp_path / f"{name}-{i}" / "entries").iterdir():
                n_entries[name] += 1
                content = path.read_bytes()
                assert contents.setdefault(path.name, content) == content, (name, chosen)
    assert sum(n_entries.values()) > 700
    # Names that differ without need would read files for nothing.
    assert len(contents) < sum(n_entries.values()) / 4


def test_a_wide_kernel_is_another_basis_than_a_narrow_one(tmp_path):
    """As capegica and capedjica have of grayordinates that are cleaned in one way."""
    kind = cape.computations.load("capegica").config
    how = resolve(kind.from_input({**BASE, "basis": "kernel", "n_basis": 9}))
    space = FeatureSpace.of_labels("mask", np.ones((6, 6, 5), dtype=np.int32), AFFINE)
    store = DataStore.open(tmp_path / "store")
    narrow = dataclasses.replace(how, brains=False)
    wide, other = (KeptSubjects(store, each, space) for each in (how, narrow))
    assert how.brains
    assert wide._what != other._what
