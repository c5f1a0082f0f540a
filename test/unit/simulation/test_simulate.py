"""Where a simulation may write: never over data, never over what is not its own."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cape
from cape.errors import ConfigError
from cape.lab.synthetic.consortium import Request, write_consortium
from cape.report import consortium_page, rebuild
from cape.simulation.simulate import check_places
from cape.site.policy import SitePolicy
from support.simulation import simulate


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    write_consortium(
        folder, Request(preset="paper", site_sizes=(4, 3, 3), n_timepoints=40, n_networks=3, seed=5)
    )
    return folder


QUICK = {"min_timepoints": 30, "n_rounds": 2, "n_components": 3, "n_basis": 16}


def test_results_never_lie_over_the_data_they_come_from(data: Path) -> None:
    # A run with --out equal to the folder of the data once deleted all of them when it had ended.
    before = sorted(path for path in data.rglob("*") if path.is_file())
    for out in (data, data / "local1"):
        with pytest.raises(ConfigError, match="would lie over the data"):
            simulate(data, out=out, settings={**QUICK, "epsilon": 8, "delta": 1e-5})
    assert sorted(path for path in data.rglob("*") if path.is_file()) == before


def test_a_folder_that_is_no_earlier_result_is_not_replaced(data: Path, tmp_path) -> None:
    precious = tmp_path / "out" / "local0" / "thesis.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("three years")
    with pytest.raises(ConfigError, match="no earlier result"):
        simulate(data, out=tmp_path / "out", settings={**QUICK, "epsilon": 8, "delta": 1e-5})
    assert precious.read_text() == "three years"


def test_results_within_the_data_are_refused_with_a_folder_that_is_taken(tmp_path) -> None:
    """`cape simulate .` in a site's folder wrote to ./out, and was told to choose another."""
    place = tmp_path / "a b"
    with pytest.raises(ConfigError, match="choose a folder beside them: --out") as refused:
        check_places({"a b": place}, place / "out")
    (_, typed) = shlex.split(refused.value.public.partition("beside them: ")[2])
    check_places({"a b": place}, Path(typed))


@pytest.mark.usefixtures("no_pages")
def test_what_stopped_an_earlier_run_does_not_stay_beside_a_good_one(data: Path, tmp_path) -> None:
    """It stayed of a site that had been taken away since."""
    left = tmp_path / "out" / "gone" / "site-error.txt"
    left.parent.mkdir(parents=True)
    left.write_text("CAPE-E138")
    simulate(data, out=tmp_path / "out", settings={**QUICK, "private": "no"})
    assert not left.parent.exists()


@pytest.mark.parametrize("name", ["consortium", "remote"])
def test_a_site_is_not_called_like_a_folder_of_results(name: str, tmp_path) -> None:
    # A site called "consortium" once replaced the results after the budget was spent.
    with pytest.raises(ConfigError, match=f"cannot be called '{name}'"):
        check_places({name: tmp_path / "data" / name}, tmp_path / "out")


def test_an_owner_of_a_simulation_need_not_name_the_product(data: Path, tmp_path) -> None:
    """Not even with settings that every computation has: sites are told its name."""

    def stop(line: object) -> None:
        raise KeyboardInterrupt

    settings = {**QUICK, "epsilon": 300, "delta": 1e-5}
    with pytest.raises(KeyboardInterrupt):
        simulate(data, out=tmp_path / "out", settings=settings, through="wire", on_progress=stop)


@pytest.mark.usefixtures("no_pages")
def test_a_run_without_noise_needs_no_epsilon_on_any_way(data: Path, tmp_path) -> None:
    # Epsilon 0 of such a run was refused when its settings came back from a document.
    settings = {**QUICK, "private": "no"}
    for through in ("memory", "wire"):
        folder = simulate(data, out=tmp_path / through, through=through, settings=settings)
        assert '"private": false' in (folder / "results.json").read_text()


@pytest.mark.usefixtures("no_pages")
def test_only_a_folder_with_planted_maps_is_called_synthetic(data: Path, tmp_path) -> None:
    # The README tells people to run their own files like this: those were called synthetic too.
    settings = {**QUICK, "private": "no"}
    for synthetic in (True, False):
        folder = simulate(data, out=tmp_path / "out", settings=settings)
        said = json.loads((folder / "results.json").read_text())
        assert (said["simulation"], said["synthetic"]) == (True, synthetic)
        (data / "truth.npz").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("ledger", "seed", "planted", "real"),
    [(True, None, False, True), (False, None, False, False), (True, 1, False, False),
     (True, None, True, False)],
)  # fmt: skip
def test_a_lab_with_its_own_ledger_and_real_noise_is_no_simulation(
    ledger: bool, seed: int | None, planted: bool, real: bool, data: Path, tmp_path
) -> None:
    # Its paper would have said "all sites were simulated" of its own people.
    for other in ("local1", "local2", *([] if planted else ["truth.npz"])):
        path = data / other
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    file = {"ledger_file": str(tmp_path / "ledger.jsonl")} if ledger else {}
    settings = {**QUICK, "n_sites": 1, "min_sites": 1, "noise": "local", "accept_low_quality": True}
    folder = simulate(
        data, out=tmp_path / "out", seed=seed, policy=SitePolicy.of_simulation(**file),
        settings={**settings, "epsilon": 8, "delta": 1e-5},
    )  # fmt: skip
    text = (folder / "methods.md").read_text()
    assert json.loads((folder / "results.json").read_text())["simulation"] is not real
    assert ("SIMULATION" not in (folder / "index.html").read_text()) is real
    assert ("no subject's data left its site" in text, "a simulation of all" in text) == (
        real, not real,
    )  # fmt: skip
    assert "of 1 site;" in text


def test_an_installed_package_needs_no_file_of_the_repository(tmp_path) -> None:
    """A process per round was started as local.py, which no wheel holds; nor is `.` imported."""
    here = Path(cape.__file__).parent
    shutil.copytree(here, tmp_path / "lib/cape", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "json.py").write_text("raise RuntimeError('not mine')\n")
    ask = (
        "from pathlib import Path\n"
        "from cape.simulation.transports import NewProcess\n"
        "NewProcess({}, Path('work'))('remote', 'remote', b'{}')\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", ask],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "lib")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "CAPE-E" in done.stderr.splitlines()[-1]
    assert "can't open file" not in done.stderr
    assert "not mine" not in done.stderr


@pytest.mark.usefixtures("no_pages")
@pytest.mark.parametrize("through", ["memory", "wire"])
def test_the_page_of_a_simulation_is_drawn_once(data, tmp_path, monkeypatch, through):
    """It was drawn by the aggregator and again with the score: a tenth of a run's time."""
    drawn: list[bool] = []

    def render(folder: Path) -> Path:
        drawn.append(json.loads((folder / "results.json").read_text())["simulation"])
        return folder / "index.html"

    monkeypatch.setattr(consortium_page, "render", render)
    simulate(data, out=tmp_path / "out", through=through, settings={**QUICK, "private": "no"})
    assert drawn == [True]


@pytest.mark.parametrize(
    ("through", "all_pages"), [("memory", False), ("wire", False), ("memory", True)]
)
def test_the_first_site_has_a_page_and_the_others_where_they_are_asked_for(
    data: Path, tmp_path, monkeypatch, through: str, all_pages: bool
) -> None:
    """Half of the time of `make run` went into pages of sites that nobody opened."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    options = {"settings": {**QUICK, "private": "no"}, "all_pages": all_pages}
    simulate(data, out=tmp_path / "out", through=through, **options)
    private = [tmp_path / "out" / site / "private" for site in ("local0", "local1", "local2")]
    assert all((folder / "site.json").is_file() for folder in private)
    has_page = [(folder / "index.html").is_file() for folder in private]
    assert has_page == [True, all_pages, all_pages]
    assert (private[0] / "index.html").stat().st_mode & 0o777 == 0o600
    rebuild(tmp_path / "out")
    assert all((folder / "index.html").is_file() for folder in private)
