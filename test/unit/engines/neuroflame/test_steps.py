"""NeuroFLAME's steps under a stand-in of its framework, and the author files in a checkout.

The stand-in holds what the framework does with the functions of an iterative workflow: every
payload goes through JSON, arguments are filled by name, state is never used.
"""

import ast
import dataclasses
import inspect
import json
import math
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packaging.requirements import Requirement

from cape.cli import main
from cape.computations import load, names
from cape.engines.flare.rounds import Question, encode_blob
from cape.engines.neuroflame import author_files, steps
from cape.report import add_score
from cape.settings.documents import not_default, toml_text
from cape.simulation.simulate import compare_with_truth
from cape.site.ledger_file import read_ledger
from cape.site.policy import SitePolicy
from support import consortium as helper
from support.flare import contents
from support.simulation import simulate

SEED = 11
POLICY = SitePolicy.of_simulation(private_results=True, simulation_seed=SEED)
SITES = ("local0", "local1", "local2")
SETTINGS = helper.settings_of(
    "capedjica", n_sites=len(SITES), site_names=",".join(SITES), n_rounds=4
)


@pytest.fixture(autouse=True)
def one_process_for_all(no_pages: None) -> Iterator[None]:
    """A process is one party there; here all are, and a run that was cut off leaves them here."""
    yield
    steps._SITES.clear()
    steps._AGGREGATORS.clear()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = helper.write_data(tmp_path_factory.mktemp("neuroflame") / "data", helper.datasets())
    for site in SITES:
        (folder / site / "site-policy.toml").write_text(toml_text(not_default(POLICY)))
    return folder


def call(fn: Callable[..., Any], *payload: Any, **known: Any) -> Any:
    wanted = [name for name in inspect.signature(fn).parameters if name in known]
    found = fn(*payload, **{name: known[name] for name in wanted})
    return json.loads(json.dumps(found))  # what is no JSON cannot travel there


def play(data: Path, out: Path, parameters: dict[str, Any], *, limit: int = 100) -> list[Any]:
    """Return all messages of the aggregator; site k has the internal id of its place."""
    message: Any = None
    messages = []
    for _ in range(limit):
        replies = {}
        for site in reversed(SITES):
            places = {"data_dir": str(data / site), "output_dir": str(out / site)}
            first = call(steps.begin) if message is None else message
            replies[site] = call(steps.answer, first, **places)
        known = {"parameters": parameters, "output_dir": str(out / "server")}
        message = call(steps.combine, replies, **known)
        messages.append(message)
        if call(steps.has_ended, message):
            break
    for site in SITES:
        call(steps.write, message, output_dir=str(out / site))
    return messages


def test_a_run_leaves_the_bytes_that_memory_leaves_and_no_secret(data, tmp_path, monkeypatch):
    """The framework kills its processes at the end: nothing is left to what runs at their exit."""
    simulate(data, out=tmp_path / "memory", settings=SETTINGS, seed=SEED, policy=POLICY)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    play(data, tmp_path / "out", {**SETTINGS, "log_level": "info", "site_id_name_map": {}})
    truth = data / "truth.npz"
    folder = tmp_path / "out" / "server"
    q_ngi, correlation = compare_with_truth(truth, folder / "unmixing.npz")
    add_score(folder, q_ngi=q_ngi, map_correlation=correlation)
    wanted = contents(tmp_path / "memory" / "consortium")
    assert contents(folder) == wanted
    for site in SITES:
        found = contents(tmp_path / "out" / site)
        assert set(wanted) <= set(found)
        assert "cape-site.json" in found
        assert any(name.startswith("private/") for name in found)
        assert "site-error.txt" not in found
    assert list((tmp_path / "temporary").iterdir()) == []


def test_nothing_secret_lies_in_an_output_folder_while_a_run_goes_on(data, tmp_path) -> None:
    """The framework keeps state as a clear file there, and people look into it."""
    play(data, tmp_path / "out", dict(SETTINGS), limit=4)
    assert [p for p in (tmp_path / "out").rglob("*") if p.is_file()] == []
    for party in [*steps._AGGREGATORS.values()]:
        assert party.runs.stat().st_mode & 0o077 == 0


def test_a_site_takes_only_the_name_under_which_its_own_nonce_came(data, tmp_path) -> None:
    output = str(tmp_path / "out")
    first = steps.answer({}, data_dir=str(data / "local0"), output_dir=output)
    for named in ({}, {"local0": "0" * 32}, {n: first["nonce"] for n in SITES}):
        message = {"run": "0" * 32, "question": "{}", "names": named}
        with pytest.raises(Exception, match="E202"):
            steps.answer(message, data_dir=str(data / "local0"), output_dir=output)


@pytest.mark.parametrize("run", ["../elsewhere", "/etc", "", None, 7])
def test_the_name_of_a_run_is_no_folder(data: Path, tmp_path: Path, run: object) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (output / "site-error.txt").write_text("why the last run ended")
    places = {"data_dir": str(data / "local0"), "output_dir": str(output)}
    first = steps.answer({}, **places)
    message = {"run": run, "question": "{}", "names": {"local0": first["nonce"]}}
    with pytest.raises(Exception, match="E202"):
        steps.answer(message, **places)
    assert (output / "site-error.txt").read_text() == "why the last run ended"


def test_who_counts_as_zeros_is_told_from_the_first_exchange_on(data: Path, tmp_path: Path) -> None:
    """For the site's people alone, and through no link that somebody planted there."""
    elsewhere, out = tmp_path / "elsewhere", tmp_path / "out" / "local0"
    elsewhere.mkdir(mode=0o777)
    out.mkdir(parents=True)
    (out / "site-notice.txt").symlink_to(elsewhere / "notice")
    quiet = dataclasses.replace(POLICY, stop_if_most_fail=False)
    data = shutil.copytree(data, tmp_path / "data")  # the fixture is of all tests
    (data / "local0" / "site-policy.toml").write_text(toml_text(not_default(quiet)))
    for path in (data / "local0").glob("sub-*.npy"):
        np.save(path, np.load(path)[:, :8])
    before = os.umask(0)
    try:
        play(data, tmp_path / "out", SETTINGS, limit=3)
    finally:
        os.umask(before)
    notice = out / "site-notice.txt"
    assert notice.read_text().startswith("NOBODY of site local0 takes part")
    assert notice.stat().st_mode & 0o777 == 0o600
    assert list(elsewhere.iterdir()) == []


def test_a_sites_own_results_are_its_own_wherever_they_are_written(data, tmp_path, monkeypatch):
    """Between two file systems they are copied: never for everybody, not even for a moment."""
    seen = []
    real = os.open

    def opened(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        if flags & os.O_CREAT and "out/local0/" in str(path):
            seen.append((Path(path).name, mode))
        return real(path, flags, mode, **more)

    (tmp_path / "elsewhere").mkdir()
    before = os.umask(0)
    try:
        output = tmp_path / "out" / "local0"
        steps._SITES[str(output)] = known = steps._Site()
        known.named({"names": {"local0": known.nonce}}, data / "local0")
        home = known.runs / ("0" * 32)
        (home / "output" / "private" / "sub").mkdir(parents=True)
        (home / "output" / "private" / "sub" / "maps.csv").write_text("of one person")
        output.mkdir(parents=True, exist_ok=True)
        (output / "private").symlink_to(tmp_path / "elsewhere")
        monkeypatch.setattr(os, "open", opened)
        steps.write({"run": "0" * 32, "files": {}}, output_dir=str(output))
    finally:
        os.umask(before)
    monkeypatch.undo()
    kept = output / "private" / "sub" / "maps.csv"
    assert kept.read_text() == "of one person"
    assert [p.stat().st_mode & 0o777 for p in (kept, kept.parent, output / "private")] == [
        0o600, 0o700, 0o700
    ]  # fmt: skip
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert ("maps.csv.partial", 0o600) in seen


# Twice within the shipped total
MEAN = helper.settings_of(
    "capemean", computation="capemean", n_sites=len(SITES), epsilon=6.0, delta=1e-5
)


@pytest.fixture
def shipped(data: Path, tmp_path: Path) -> Path:
    """Sites without a policy of their own."""
    folder = shutil.copytree(data, tmp_path / "data")
    for site in SITES:
        (folder / site / "site-policy.toml").unlink()
    return folder


def test_the_shipped_policy_keeps_its_ledger_where_the_engine_keeps_a_folder(shipped, tmp_path):
    """A ledger among the data was refused (E269), and no site had another place: none answered."""
    # What lies there is no data of the next run, and its total holds over both.
    home = shipped / "local0" / ".cape-site"
    for name, runs in (("one", 1), ("two", 2)):
        messages = play(shipped, tmp_path / name, MEAN)
        assert steps.has_ended(messages[-1])
        spent = read_ledger(home / "ledger.jsonl").runs
        assert [run.state for run in spent] == ["finished"] * runs
        assert all(run.charges for run in spent)
    assert spent[0].people == spent[1].people
    with pytest.raises(RuntimeError, match=r"CAPE-E260 .*max_total"):
        play(shipped, tmp_path / "three", MEAN)
    # Only that home: whatever a policy names in this folder is refused, as everywhere.
    (shipped / "local0" / "site-policy.toml").write_text('ledger_file = "ledger.jsonl"\n')
    steps._AGGREGATORS.clear()
    with pytest.raises(RuntimeError, match="CAPE-E267"):
        play(shipped, tmp_path / "four", MEAN | {"epsilon": 0.1})
    assert "CAPE-E269" in (tmp_path / "four" / "local0" / "site-error.txt").read_text()


def test_a_name_that_the_aggregator_gives_is_no_new_owner(shipped: Path, tmp_path: Path) -> None:
    """With a new name each time a site said of six thresholds whether most people pass."""
    site, told = shipped / "local0", []
    for k in range(6):
        places = {"data_dir": str(site), "output_dir": str(tmp_path / f"o{k}")}
        nonce = steps.answer({}, **places)["nonce"]
        run, asked = f"{k:032x}", {**SETTINGS, "epsilon": 1.0, "delta": 1e-5}
        question = Question(run=run, iteration=1, input={**asked, "min_timepoints": 10 + k})
        names = {f"name{k}": nonce}
        message = {"run": run, "question": encode_blob(question).decode(), "names": names}
        told.append(json.loads(steps.answer(message, **places)["answer"])["error"][:9])
    assert told == [""] * 3 + ["CAPE-E239"] * 3


def test_a_process_that_was_started_anew_says_so(data: Path, tmp_path: Path) -> None:
    """As the framework's simulator does where it has fewer threads than sites."""
    with pytest.raises(RuntimeError, match=r"CAPE-E202 .*does not know the run.* -t and the num"):
        steps.answer({"run": "0" * 32}, data_dir=str(data / "local0"), output_dir=str(tmp_path))


def test_a_refusal_of_a_site_is_told_by_its_public_text_and_kept_at_the_site(data, tmp_path):
    with pytest.raises(RuntimeError, match="CAPE-E011 n_components=99") as caught:
        play(data, tmp_path / "out", {**SETTINGS, "n_components": 99})
    assert caught.value.__cause__ is None
    assert "CAPE-E011" in (tmp_path / "out" / "server" / "site-error.txt").read_text()
    steps._AGGREGATORS.clear()
    policy = data / "local1" / "site-policy.toml"
    before = policy.read_text()
    policy.write_text(toml_text(not_default(SitePolicy.of_simulation(max_run=((0.001, 1e-5),)))))
    try:
        with pytest.raises(RuntimeError, match="CAPE-E"):
            play(data, tmp_path / "two", dict(SETTINGS))
        own = (tmp_path / "two" / "local1" / "site-error.txt").read_text()
        assert "max_run = 0.001 at delta 1e-5, the run has" in own
        # The framework says "aborted" to the others.
        words = (tmp_path / "two" / "local0" / "site-error.txt").read_text()
        assert words.startswith(own.partition("\n")[0] + "\n\nThe aggregator ended the run with")
    finally:
        policy.write_text(before)


def numbers_of_e320(err: Exception) -> tuple[int, ...]:
    found = re.search(
        r"(\d+) exchanges take about (\d+) minutes in NeuroFLAME, with the reading so far "
        r"\((\d+)\) (\d+); it ends a run after (\d+): lower n_rounds, or have sites read less\.",
        str(err),
    )
    assert found is not None, err
    return tuple(map(int, found.groups()))


def test_a_plan_beyond_the_frameworks_hour_is_refused_before_anything_is_charged(data, tmp_path):
    """Two seconds an exchange as it is shipped: 2,000 rounds would be cut off after 1,790."""
    with pytest.raises(RuntimeError, match=r"CAPE-E320 2\d{3} exchanges .*") as caught:
        play(data, tmp_path / "out", {**SETTINGS, "n_rounds": 2000})
    exchanges, minutes, reading, total, limit = numbers_of_e320(caught.value)
    assert (minutes, reading, limit) == (math.ceil(exchanges / 30), 0, 60)
    assert minutes <= total <= minutes + 1
    (aggregator,) = steps._AGGREGATORS.values()
    assert aggregator.state.iteration == 1  # only `join` was answered


def test_the_time_in_which_sites_read_their_data_counts(data, tmp_path, monkeypatch) -> None:
    """It is part of the framework's hour: a small run after it would be cut off, and charged."""
    real, begun = time.monotonic, steps._Aggregator

    def late(settings: dict[str, Any], sites: list[str]) -> Any:
        aggregator = begun(settings, sites)
        aggregator.begun = real() - 3590
        return aggregator

    monkeypatch.setattr(steps, "_Aggregator", late)
    with pytest.raises(RuntimeError, match="CAPE-E320 ") as caught:
        play(data, tmp_path / "out", SETTINGS)
    # A small plan is not the cause, and says so.
    _, minutes, reading, total, limit = numbers_of_e320(caught.value)
    assert minutes < 5
    assert (reading, limit) == (60, 60)
    assert limit < total <= reading + minutes
    assert not list((tmp_path / "out").rglob("results.json"))
    (aggregator,) = steps._AGGREGATORS.values()
    assert aggregator.state.iteration == 1


def test_drop_outs_are_refused_before_a_site_is_asked(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"CAPE-E011 aggregation=secagg: allowed all-sites"):
        play(data, tmp_path / "out", {**SETTINGS, "aggregation": "secagg"})
    assert steps._AGGREGATORS == {}


# -- author files ---------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    for mark in author_files.CHECKOUT_FILES:
        (folder / mark).parent.mkdir(parents=True, exist_ok=True)
        (folder / mark).write_text("numpy==1.24.4\n" if mark.endswith(".txt") else "")
    (folder / author_files.AUTHORS).mkdir(parents=True)
    (folder / author_files.AUTHORS / "local_math.py").write_text("")
    return folder


def test_author_files_are_laid_into_a_checkout_once(checkout: Path, capsys) -> None:
    framework = contents(checkout / "app" / "code" / "framework")
    for _ in range(2):
        assert main(["neuroflame", str(checkout)]) == 0
    written = contents(checkout)
    assert "app/code/computation/local_math.py" not in written
    for name, text in author_files.files().items():
        assert written[name].decode() == text
    lines = written["requirements.txt"].decode().splitlines()
    assert lines == ["numpy==1.24.4", *author_files.WANTED]
    assert contents(checkout / "app" / "code" / "framework") == framework
    parameters = json.loads(written["test_data/server/parameters.json"])
    assert parameters["computation"] == "capedjica"


def test_a_pin_with_known_holes_gives_way_and_numpy_stays(checkout: Path) -> None:
    """The boilerplate pins cryptography and Jinja2 that cape refuses: no set of versions fitted."""
    requirements = checkout / "requirements.txt"
    requirements.write_text(
        "numpy==1.24.4\nCryptography==42.0.8\nJinja2==3.1.3\ncryptography-vectors==1\n"
    )
    for _ in range(2):
        assert main(["neuroflame", str(checkout)]) == 0
    lines = requirements.read_text().splitlines()
    assert lines == ["numpy==1.24.4", "cryptography-vectors==1", *author_files.WANTED]
    bounds = [Requirement(line).specifier for line in lines if line.startswith("cryptography>")]
    assert [bound.contains("42.0.8") for bound in bounds] == [False]


def test_an_owners_settings_take_the_place_of_the_example(checkout: Path, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("n_components = 7\nn_sites = 3\n")
    words = ["neuroflame", str(checkout), "--settings", str(settings)]
    assert main([*words, "--set", "epsilon=2", "--set", "delta=1e-5"]) == 0
    found = json.loads((checkout / "test_data" / "server" / "parameters.json").read_text())
    chosen = {"n_components": 7, "n_sites": 3, "epsilon": "2", "delta": "1e-5"}
    # As `cape budget` and `cape simulate` take settings that name none.
    assert found == {"computation": "capegica", **chosen}
    before = contents(checkout)
    assert main([*words, "--set", "n_component=2"]) == 2
    # The framework has no drop-outs.
    assert main([*words, "--set", "epsilon=2", "--set", "delta=1e-5",
                 "--set", "aggregation=secagg"]) == 2  # fmt: skip
    assert contents(checkout) == before


@pytest.mark.parametrize("name", names())
def test_a_leader_finds_the_parameters_of_the_computation(checkout: Path, name: str) -> None:
    """Notes and description once were those of capedjica whatever the parameters said."""
    settings = {"computation": name, "n_sites": 3, "epsilon": 4, "delta": 1e-5}
    author_files.lay(checkout, settings)
    notes = (checkout / "display_notes.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", notes, flags=re.MULTILINE)
    fields = {field.name for field in dataclasses.fields(load(name).config)}
    assert sorted(rows) == sorted({"computation", *fields} - set(steps.NOT_IN_NEUROFLAME))
    assert f"| `computation` | (required) | {name} |" in notes
    text = (checkout / "description.md").read_text()
    assert f": {name}\n" in text
    assert ("private time courses" in text) == (name == "capedjica")
    parameters = json.loads((checkout / "test_data" / "server" / "parameters.json").read_text())
    assert parameters == settings
    steps.check_settings(parameters)


def test_a_folder_that_is_no_checkout_stays_as_it_is(tmp_path: Path, capsys) -> None:
    (tmp_path / "requirements.txt").write_text("")
    assert main(["neuroflame", str(tmp_path)]) == 2
    assert "CAPE-E321" in capsys.readouterr().err
    assert contents(tmp_path) == {"requirements.txt": b""}


def test_the_workflow_names_steps_as_the_framework_allows() -> None:
    """It fills arguments by name, allows no others, and takes the payload first."""
    filled = {"parameters", "data_dir", "output_dir", "logger", "state", "artifact_dir"}
    functions = (steps.answer, steps.combine, steps.has_ended, steps.write)
    for function in functions:
        payload, *others = inspect.signature(function).parameters
        assert payload not in filled
        assert set(others) <= filled
    assert not inspect.signature(steps.begin).parameters
    spec = author_files.files()[f"{author_files.AUTHORS}/spec.py"]
    names = {
        alias.name
        for node in ast.walk(ast.parse(spec))
        if isinstance(node, ast.ImportFrom) and node.module == "cape.engines.neuroflame.steps"
        for alias in node.names
    }
    assert names == {"answer", "begin", "combine", "has_ended", "write"}


def test_a_run_that_the_framework_ends_frees_what_it_holds(data: Path, tmp_path: Path) -> None:
    """Its process is told nothing: what stands beside the data is put right as the process goes."""
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    kept = dataclasses.replace(POLICY, ledger_file="../{}.jsonl")
    for site in SITES:
        text = toml_text(not_default(kept)).replace("{}", site)
        (folder / site / "site-policy.toml").write_text(text)
    play(folder, tmp_path / "out", dict(SETTINGS), limit=6)
    for site in SITES:
        (run,) = read_ledger(folder / f"{site}.jsonl").runs
        assert (run.state, run.why, bool(run.charges)) == ("failed", "stopped", True)
