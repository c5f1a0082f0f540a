"""Which settings of a consortium's file a run takes, and which seeds it can have."""

import warnings

import pytest

from cape.cli import main
from cape.errors import CapeWarning, ConfigError
from cape.planning.consortium_folder import merged, read_file, read_settings
from cape.python.api import Consortium
from cape.simulation.simulate import MAX_SEED
from support.simulation import simulate

FILE = {
    "n_components": 20, "n_rounds": 40, "step_limit": 0.1, "standardize": "demean",
    "detrend": "none", "basis": "dct", "n_basis": 100, "epsilon": 2.0, "tr": 2.0,
}  # fmt: skip


def of(given: dict[str, object], file: dict[str, object] | None = None) -> dict[str, object]:
    return merged(FILE if file is None else file, given)


def test_a_common_setting_that_a_computation_only_narrows_is_kept() -> None:
    # djica lists standardize again without "none"; the file's "demean" was then dropped without a
    # word, and the maps of the documented command had a correlation of .85 in place of .98.
    with pytest.warns(CapeWarning) as said:
        chosen = of({"computation": "djica", "n_rounds": 9})
    common = ("standardize", "detrend", "basis", "n_basis", "epsilon", "tr")
    assert chosen == {name: FILE[name] for name in common} | {"computation": "djica", "n_rounds": 9}
    (one,) = (str(each.message) for each in said)
    assert one.startswith("djica ignores: ")
    assert "ignores: n_components, step_limit (settings.toml is for capedjica;" in one


def test_a_line_of_init_on_an_atlas_is_no_setting_that_is_ignored() -> None:
    """Each command of a lab with an atlas warned "capecontrast ignores: label_pairs"."""
    file = {"computation": "capegica", "label_pairs": "1-2", "epsilon": 2.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = of({"computation": "capecontrast"}, file)
    assert chosen == {"computation": "capecontrast", "epsilon": 2.0}


def test_what_a_computation_needs_otherwise_or_does_not_know_is_not_taken_from_the_file() -> None:
    # The mean over rows without their means would be 0: capemean declares its own defaults.
    with pytest.warns(CapeWarning, match="capemean ignores: .*standardize, basis") as said:
        chosen = of({"computation": "capemean", "low": -3})
    assert "detrend" not in str(said[0].message)  # the file says what capemean says
    assert sorted(chosen) == ["computation", "detrend", "epsilon", "low", "n_basis", "tr"]
    assert "noise" not in _quiet({"computation": "dpdispca"}, {"noise": "correlated"})
    assert "mask" not in _quiet({"computation": "djica"}, {"mask": 3})


def _quiet(given: dict[str, object], file: dict[str, object]) -> dict[str, object]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CapeWarning)
        return of(given, file)


def test_the_files_own_computation_gets_all_of_it_and_nothing_is_said() -> None:
    assert of({}) == FILE
    assert of({"computation": "capedjica", "epsilon": 1}) == {
        **FILE, "computation": "capedjica", "epsilon": 1,
    }  # fmt: skip
    other = {"computation": "djica", "anneal": False}
    assert of({}, other) == other
    assert of({"computation": "dpdjica"}, {"computation": "djica"}) == {"computation": "dpdjica"}


def test_a_check_takes_the_settings_that_a_run_takes(tmp_path) -> None:
    # `cape validate --set computation=djica` once refused the files that `cape simulate` runs.
    path = tmp_path / "settings.toml"
    path.write_text('n_components = 4\nscore = "tanh"\nstandardize = "demean"\n')
    with pytest.warns(CapeWarning, match="djica ignores: n_components, score"):
        asked = read_settings(path, {"computation": "djica"})
    assert asked.config.standardize == "demean"
    for text in ("epsilon = ", "a = " + "[" * 5000):
        path.write_text(text)
        with pytest.raises(ConfigError, match="the settings cannot be read"):
            read_file(path)


@pytest.mark.parametrize("seed", [-1, MAX_SEED + 1, 1.0, True])
def test_a_seed_that_no_site_can_have_is_refused(seed: object, tmp_path, capsys) -> None:
    # --seed -1 once meant no seed: noise of the operating system, and "private" on the page;
    # one above 2^63 - 1 ended in a text about site policies.
    (tmp_path / "data" / "local0").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"E011 seed=.*0 to 2\^63 - 1"):
        simulate(tmp_path / "data", out=tmp_path / "out", seed=seed)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="E011 seed="):
        Consortium({"a": [[[1.0, 2.0]]]}).run(epsilon=1.0, seed=seed)  # type: ignore[arg-type, dict-item, list-item]
    if type(seed) is int:
        asked = ["simulate", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
        assert main([*asked, "--seed", str(seed)]) == 2
        assert "--seed" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_table_of_the_file_is_for_the_computation_that_it_names() -> None:
    """One file is for the maps and for the question that follows them."""
    both = {"computation": "capegica", "tr": 2.0, "capemean": {"clip": 2.0}}
    assert of({}, both) == {"computation": "capegica", "tr": 2.0}
    assert of({"computation": "capemean"}, both) == {
        "computation": "capemean", "tr": 2.0, "clip": 2.0,
    }  # fmt: skip
    assert of({"computation": "capemean", "clip": 3.0}, both)["clip"] == 3.0
    assert of({}, {"computation": "capegica", "wrong": {}})["wrong"] == {}
