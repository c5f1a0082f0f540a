"""Synthetic consortia: layout, ground truth, determinism, and that the truth can be found again."""

import hashlib
import tomllib
from pathlib import Path
from typing import get_args

import nibabel as nib
import numpy as np
import pytest

from cape.cli.run_commands import PresetName
from cape.data.pipeline import reduce_again
from cape.errors import ConfigError
from cape.lab.synthetic.brain import NETWORKS
from cape.lab.synthetic.consortium import DEFAULTS, Request, split_unequally, write_consortium
from cape.settings.config import Config
from support.sites import load_site


def contents(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def brain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synth") / "brain"
    write_consortium(
        folder, Request(site_sizes=(4, 3, 3, 2), n_timepoints=60, n_networks=4, seed=5)
    )
    return folder


def config_of(folder: Path) -> Config:
    values = tomllib.loads((folder / "settings.toml").read_text(encoding="utf-8"))
    for name in ("computation", "n_components"):
        values.pop(name, None)
    return Config.from_input({**values, "epsilon": 8.0, "delta": 1e-5})


def test_equal_arguments_give_equal_bytes_and_another_seed_other_images(brain, tmp_path):
    sizes = {"site_sizes": (4, 3, 3, 2), "n_timepoints": 60, "n_networks": 4}
    write_consortium(tmp_path / "again", Request(seed=5, **sizes))
    write_consortium(tmp_path / "other", Request(seed=6, **sizes))
    assert contents(tmp_path / "again") == contents(brain)
    first = "local0/sub-001_task-rest_bold.nii.gz"
    assert contents(tmp_path / "other")[first] != contents(brain)[first]


def test_the_owner_must_still_choose_epsilon_and_delta(brain):
    text = (brain / "settings.toml").read_text(encoding="utf-8")
    values = tomllib.loads(text)
    assert not {"epsilon", "delta"} & set(values)
    assert "# epsilon" in text
    assert (values["n_components"], values["n_basis"], values["standardize"]) == (4, 400, "demean")


def test_sites_store_the_same_grid_in_four_ways(brain):
    paths = [sorted((brain / f"local{site}").iterdir())[0] for site in range(4)]
    images = [nib.load(path) for path in paths]
    axes = ["".join(nib.aff2axcodes(image.affine)) for image in images]
    types = [image.get_data_dtype().kind for image in images]
    forms = [int(image.header["sform_code"]) for image in images]
    assert axes == ["RAS", "LAS", "RAS", "RAS"]
    assert types == ["i", "i", "f", "i"]
    assert forms == [4, 4, 4, 0]
    for image in images:
        values = np.asarray(image.dataobj)
        assert 900 < values[values > 0].mean() < 1100


def test_maps_lie_where_their_names_say(brain):
    truth = np.load(brain / "truth.npz", allow_pickle=False)
    assert truth["A"].shape == (1876, 4)
    assert list(truth["names"]) == list(NETWORKS)[:4]
    mask = nib.load(Path(__file__).parents[4] / "cape" / "space" / "masks" / "MNI152-10mm.nii.gz")
    voxels = np.argwhere(np.asarray(mask.dataobj) > 0)
    peak = nib.affines.apply_affine(mask.affine, voxels[np.argmax(truth["A"][:, 1])])
    assert min(np.linalg.norm(peak - centre) for centre in np.array(NETWORKS["visual"])) < 10


def test_the_planted_maps_are_in_the_data_of_every_site(brain):
    config = config_of(brain)
    maps = np.load(brain / "truth.npz")["A"]
    plane = np.linalg.qr(maps)[0]
    for site in range(4):
        loaded = load_site(brain / f"local{site}", {}, config, site=f"local{site}")
        assert {subject.trs for subject in loaded.subjects} == {(2.0,)}
        for _, values in reduce_again(loaded, None, config):
            left = np.linalg.svd(values.astype(float), full_matrices=False)[0][:, :4]
            assert np.linalg.svd(plane.T @ left, compute_uv=False).min() > 0.9


def test_another_seed_draws_other_noise_too(brain, tmp_path):
    write_consortium(
        tmp_path / "other", Request(site_sizes=(4, 3, 3, 2), n_timepoints=60, n_networks=4, seed=6)
    )
    config = config_of(brain)
    plane = np.linalg.qr(np.load(brain / "truth.npz")["A"])[0]
    noise = []
    for folder in (brain, tmp_path / "other"):
        loaded = load_site(folder / "local3", {}, config, site="local3")
        values = next(reduce_again(loaded, None, config))[1].astype(float)
        noise.append((values - plane @ (plane.T @ values))[0, :50])  # the first draws
    assert abs(np.corrcoef(noise)[0, 1]) < 0.6


def test_lengths_of_runs_differ_between_subjects(brain):
    loaded = load_site(brain / "local0", {}, config_of(brain), site="local0")
    lengths = {subject.n_timepoints for subject in loaded.subjects}
    assert len(lengths) > 1
    assert min(lengths) >= 51
    assert max(lengths) <= 69


@pytest.mark.parametrize("preset", ["paper", "realistic"])
def test_matrix_presets_hold_images_of_30_by_30_pixels(tmp_path, preset):
    made = write_consortium(
        tmp_path / "c",
        Request(preset=preset, site_sizes=(2, 1), n_timepoints=50, n_networks=5, seed=1),
    )
    config = config_of(tmp_path / "c")
    loaded = load_site(tmp_path / "c" / "local0", {}, config, site="local0")
    assert (loaded.space.n_features, loaded.space.shape, made.n_features) == (900, (30, 30), 900)
    maps = np.load(tmp_path / "c" / "truth.npz")["A"]
    values = dict(reduce_again(loaded, None, config))["sub-001"].astype(float)
    outside = values - maps @ np.linalg.lstsq(maps, values, rcond=None)[0]
    share = np.sum(outside**2) / np.sum(values**2)
    assert share < (1e-6 if preset == "paper" else 0.5)


def test_two_sided_brains_are_so_and_smooth_ones_are_the_same_noise_without_networks(tmp_path):
    made = {}
    for preset in ("two-sided", "smooth"):
        write_consortium(
            tmp_path / preset,
            Request(preset=preset, site_sizes=(2, 1), n_timepoints=30, n_networks=10, seed=4),
        )
        image = nib.load(tmp_path / preset / "local0" / "sub-001_task-rest_bold.nii.gz")
        made[preset] = np.asarray(image.dataobj)
        assert 'computation = "capegica"' in (tmp_path / preset / "settings.toml").read_text()
    inside = (made["smooth"] > 0).all(axis=3)
    assert made["smooth"].shape == made["two-sided"].shape == (*inside.shape, 30)
    with np.load(tmp_path / "two-sided" / "truth.npz") as truth:
        A = truth["A"]
    volume = np.zeros((*inside.shape, 10))
    volume[inside] = A
    # Voxels of the bundled mask lie 4 mm beside the mirror images of others.
    shifted = volume[::-1]
    r = [np.corrcoef(volume[..., k][inside], shifted[..., k][inside])[0, 1] for k in range(10)]
    assert min(r[:8]) > 0.6
    assert max(r[8:]) < 0.2  # one in five is on one side only


def test_the_command_offers_every_preset():
    assert list(get_args(PresetName)) == list(DEFAULTS)


def test_subjects_are_split_unequally_and_completely():
    assert split_unequally(200, 4) == (82, 56, 37, 25)
    assert split_unequally(4, 4) == (1, 1, 1, 1)
    for n_sites in (1, 2, 7):
        sizes = split_unequally(31, n_sites)
        assert sum(sizes) == 31
        assert sorted(sizes, reverse=True) == list(sizes)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (
            {"preset": "mouse"},
            "preset=mouse: allowed brain, groups, two-sided, smooth, paper, realistic",
        ),
        ({"n_sites": 9, "n_subjects": 3}, "n_sites=9"),
        ({"site_sizes": (2, 0)}, "site_sizes"),
        ({"n_networks": 11}, "n_networks=11: allowed 2 to 10"),
        ({"n_timepoints": 7}, "n_timepoints=7"),
        ({"grid_mm": 5}, "grid_mm=5: allowed 10, 8, 6, 4, 3"),
        ({"seed": -1}, "seed=-1"),
        ({"tr": 0.0}, "tr=0.0"),
    ],
)
def test_impossible_requests_say_what_is_allowed_and_write_nothing(tmp_path, given, part):
    with pytest.raises(ConfigError) as caught:
        write_consortium(tmp_path / "c", Request(**given))
    assert part in str(caught.value)
    assert not (tmp_path / "c").exists()


def test_a_folder_that_is_in_use_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("dear reader")
    with pytest.raises(ConfigError, match="not empty"):
        write_consortium(tmp_path, Request(site_sizes=(1,)))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
