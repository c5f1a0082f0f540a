"""`cape resume`: a stopped simulation goes on, ends as if nothing had happened, or says why not.

Belongs to `cape/simulation/simulate.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cape.cli import main
from cape.errors import CapeError, StoppedError
from cape.planning.consortium_folder import read_settings
from cape.report.site_page import render_site as drawn
from cape.simulation import run_loop, transports
from cape.simulation import simulate as module
from cape.simulation.simulate import resume, simulate
from cape.site.files import folder_lock
from cape.site.ledger_file import read_ledger
from cape.site.policy import SitePolicy
from support import consortium as helper

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("no_pages")


SETTINGS = helper.settings_of("capedjica")
SECAGG = helper.settings_of("capedjica", aggregation="secagg")
GAUSSIAN = helper.settings_of("papermean", computation="papermean")
CONTRAST = helper.settings_of("capecontrast", computation="capecontrast")
HOW = {"ring": SETTINGS, "secagg": SECAGG, "gaussian": GAUSSIAN, "contrast": CONTRAST}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return helper.write_data(tmp_path_factory.mktemp("data"), computation="capecontrast")


def maps(folder: Path) -> dict[str, bytes]:
    if (folder / "histogram.csv").exists():  # of `papermean`
        return {name: (folder / name).read_bytes() for name in ("mean.csv", "histogram.csv")}
    if (folder / "effects.tsv").exists():
        return {name: (folder / name).read_bytes() for name in ("effects.tsv", "groups.tsv")}
    with np.load(folder / "unmixing.npz", allow_pickle=False) as stored:
        return {name: stored[name].tobytes() for name in sorted(stored.files)}


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    """Maps of runs that were not stopped, by aggregation."""
    found = {}
    with helper.without_pages():
        for name, settings in HOW.items():
            out = tmp_path_factory.mktemp(name)
            found[name] = maps(simulate(data, out=out, settings=settings, seed=3))
    return found


class Stop(BaseException):
    """As a Ctrl-C, at a chosen exchange."""


def stop_at(exchange: int):
    def on_progress(line) -> None:
        if line.exchange == exchange:
            raise Stop

    return on_progress


@pytest.mark.parametrize("through", ["memory", "wire"])
@pytest.mark.parametrize("how", HOW)
def test_a_run_stopped_after_any_exchange_ends_with_the_same_maps(
    data, undisturbed, tmp_path, through, how
) -> None:
    settings = HOW[how]
    seen = []
    with pytest.raises(Stop):
        simulate(data, out=tmp_path, settings=settings, seed=3, through=through,
                 on_progress=stop_at(1))  # fmt: skip
    for _ in range(60):

        def again(line) -> None:
            seen.append(line.exchange)
            raise Stop

        try:
            folder = resume(tmp_path, on_progress=again)
        except Stop:
            continue
        break
    assert seen == list(range(2, len(seen) + 2))  # every exchange once, each in another process
    assert seen[-1] >= 8
    assert maps(folder) == undisturbed[how]
    assert not (tmp_path / ".work").exists()
    results = json.loads((folder / "results.json").read_text())
    assert results["simulation"] is True


def test_an_exchange_that_was_cut_is_asked_again_and_charged_once(
    data, undisturbed, tmp_path, monkeypatch
) -> None:
    """Stopped between the answers of two sites, in every exchange: one had answered."""
    policy = SitePolicy.of_simulation(ledger_file=str(tmp_path / "ledger.jsonl"))  # fmt: skip
    real = transports.InProcess.__call__
    asked = []

    def call(self, role, party, text):
        answer = real(self, role, party, text)
        asked.append(party)
        if party == "local1" and asked.count("local1") % 2:
            raise Stop
        return answer

    monkeypatch.setattr(transports.InProcess, "__call__", call)
    go = lambda: simulate(data, out=tmp_path / "out", settings=SETTINGS, seed=3,  # noqa: E731
                          through="wire", policy=policy)  # fmt: skip
    for _ in range(20):
        try:
            folder = go()
        except Stop:
            go = lambda: resume(tmp_path / "out")  # noqa: E731
            continue
        break
    assert asked.count("local1") == 2 * 8
    assert maps(folder) == undisturbed["ring"]
    runs = read_ledger(tmp_path / "ledger.jsonl").runs
    assert len(runs) == 3  # one a site: no run was begun twice
    for run in runs:
        assert [(c.phase, c.round) for c in run.charges] == [
            ("pca", 1), ("whitening", 1), ("iterate", 1), ("iterate", 2)
        ]  # fmt: skip


def test_a_real_run_that_was_stopped_releases_nothing_twice(data, tmp_path) -> None:
    """Without a seed: what sites had answered comes from their journals, byte for byte."""
    drawn = []
    with pytest.raises(Stop):
        simulate(data, out=tmp_path, settings=SETTINGS, through="wire", on_progress=stop_at(5))
    before = json.loads((tmp_path / ".work" / "run.json").read_bytes())
    journal = tmp_path / ".work" / "local0" / "output" / ".cape" / "receipt.jsonl"
    stored = json.loads(journal.read_bytes().splitlines()[0])
    folder = resume(tmp_path, on_progress=lambda line: drawn.append(line.exchange))
    assert stored["seq"] == 5  # complete: it was not asked again
    assert drawn == [6, 7, 8]
    assert before["exchange"] == 5
    results = json.loads((folder / "results.json").read_text())
    assert results["private"] is True
    assert results["epsilon_spent"] <= results["epsilon"]


def test_a_run_stopped_while_results_are_put_in_place_ends_too(
    data, undisturbed, tmp_path, monkeypatch
) -> None:
    real = module._replace
    calls = []

    def replace(new, old):
        calls.append(old.name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(new, old)

    monkeypatch.setattr(module, "_replace", replace)
    with pytest.raises(KeyboardInterrupt):
        simulate(data, out=tmp_path, settings=SETTINGS, seed=3)
    folder = resume(tmp_path)
    assert maps(folder) == undisturbed["ring"]
    assert all((tmp_path / site / "cape-site.json").is_file() for site in ("local0", "local2"))


@pytest.mark.parametrize("through", ["memory", "wire"])
def test_a_full_disk_stops_a_run_and_it_goes_on_when_there_is_room(
    data, undisturbed, tmp_path, monkeypatch, through
) -> None:
    real = os.fsync
    count = iter(range(10**6))
    monkeypatch.setattr(os, "fsync", lambda handle: full() if next(count) == 12 else real(handle))

    def full():
        raise OSError(28, "No space left on device")

    attempts = 0
    try:
        simulate(data, out=tmp_path, settings={**SETTINGS, "n_rounds": 5}, seed=3, through=through)
    except (OSError, StoppedError):
        attempts += 1
    assert attempts == 1
    folder = resume(tmp_path)
    whole = simulate(data, out=tmp_path / "x", settings={**SETTINGS, "n_rounds": 5}, seed=3)
    assert maps(folder) == maps(whole)
    assert not list(tmp_path.glob("local*/site-error.txt"))


# -- what cannot go on ---------------------------------------------------------------------------


def refused(out: Path, words: str) -> CapeError:
    with pytest.raises(CapeError, match=words) as caught:
        resume(out)
    assert str(out) not in caught.value.public
    return caught.value


def test_a_folder_without_a_stopped_run_is_refused(data, tmp_path) -> None:
    refused(tmp_path, "E264 this folder holds no stopped run; start one")
    simulate(data, out=tmp_path, settings=SETTINGS, seed=3)
    refused(tmp_path, "no stopped run; it ended; repeat it with: cape rerun")


@pytest.fixture
def stopped(data, tmp_path) -> Path:
    with pytest.raises(Stop):
        simulate(data, out=tmp_path / "out", settings=SETTINGS, seed=3, on_progress=stop_at(4))
    return tmp_path / "out"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"{}", b"\xff", b"null"])
def test_a_damaged_record_is_refused(stopped, damage) -> None:
    (stopped / ".work" / "run.json").write_bytes(damage)
    refused(stopped, "E264 what this folder says of its stopped run is damaged; start a new run")


@pytest.mark.parametrize(
    ("through", "way", "value"),
    [
        ("memory", "state", {}), ("memory", "state left", ["nobody"]), ("memory", "state left", []),
        ("memory", "exchange", 10**6), ("memory", "exchange", -1),
        ("memory", "setup through", "elsewhere"), ("memory", "setup through", "wire"),
        ("memory", "state parties local0 replies", [5]),
        ("memory", "state parties local0 secrets", {}),
        ("memory", "state parties local0 card", 7), ("memory", "state parties", {}),
        ("wire", "state", {}), ("wire", "state left", ["nobody"]), ("wire", "state caches", {}),
        ("wire", "state caches", 3), ("wire", "state input", [1]), ("wire", "state iteration", "x"),
        ("wire", "setup through", "memory"),
    ],
    ids=str,
)  # fmt: skip
def test_a_record_that_says_nonsense_is_refused(data, tmp_path, through, way, value) -> None:
    """Such records ended in an internal error: a KeyError, a TypeError, a run without an end."""
    with pytest.raises(Stop):
        simulate(data, out=tmp_path, settings=SETTINGS, seed=3, through=through,
                 on_progress=stop_at(4))  # fmt: skip
    path = tmp_path / ".work" / "run.json"
    document = json.loads(path.read_bytes())
    place = document
    *outer, last = way.split()
    for name in outer:
        place = place[name]
    assert place[last] != value
    place[last] = value
    path.write_text(json.dumps(document))
    refused(tmp_path, "E264|E210|E011")


def test_another_version_does_not_go_on_with_a_run(stopped) -> None:
    path = stopped / ".work" / "run.json"
    path.write_bytes(json.dumps({**json.loads(path.read_bytes()), "version": "0.0.0"}).encode())
    refused(stopped, "E264 the run was started by version 0.0.0, this is .*; continue it with")


def test_data_that_changed_in_between_end_the_run(data, tmp_path) -> None:
    mine = tmp_path / "data"
    shutil.copytree(data, mine)
    with pytest.raises(Stop):
        simulate(mine, out=tmp_path / "out", settings=SETTINGS, seed=3, on_progress=stop_at(4))
    np.save(mine / "local1" / "sub-00.npy", helper.subjects(1, seed=77)[0])
    refused(tmp_path / "out", "E161 Files changed during the run at site local1")


def test_a_run_that_a_site_refused_has_ended(data, tmp_path) -> None:
    with pytest.raises(CapeError, match="E154"):
        simulate(data, out=tmp_path, settings=SETTINGS, policy=SitePolicy.of_simulation(veto=True))
    refused(tmp_path, "E264 this folder holds no stopped run")


def test_a_run_that_is_still_going_is_left_alone(data, stopped) -> None:
    with folder_lock(stopped / ".work", "other"):
        refused(stopped, "E263 this results folder is in use by another process")
        with pytest.raises(StoppedError, match="E263"):
            simulate(data, out=stopped, settings=SETTINGS, seed=3)
    assert (stopped / ".work" / "run.json").is_file()


def test_a_new_run_takes_the_place_of_a_stopped_one(data, stopped, undisturbed) -> None:
    assert maps(simulate(data, out=stopped, settings=SETTINGS, seed=3)) == undisturbed["ring"]


def test_the_command_says_how_to_go_on_and_shows_progress(
    data, undisturbed, tmp_path, monkeypatch, capsys
) -> None:
    real = run_loop.progress_line
    monkeypatch.setattr(
        run_loop, "progress_line",
        lambda exchange, *rest: stop() if exchange == 5 else real(exchange, *rest),
    )  # fmt: skip

    def stop():
        raise KeyboardInterrupt

    given = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    out = tmp_path / "out"
    code = main(["simulate", str(data), "--out", str(out), "--seed", "3", *given])
    assert code == 130
    assert f"continue it with: cape resume {out}" in capsys.readouterr().err
    monkeypatch.setattr(run_loop, "progress_line", real)
    assert main(["resume", str(out), "--json"]) == 0
    told = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    rounds = [(one["exchange"], one["phase"]) for one in told if "exchange" in one]
    assert rounds[0] == (6, "iterate")
    assert maps(out / "consortium") == undisturbed["ring"]
    assert main(["resume", str(out)]) == 2
    # A finished run is evidence: it was replaced without a word.
    evidence = (out / "consortium" / "privacy.json").read_bytes()
    assert main(["simulate", str(data), "--out", str(out), "--seed", "4", *given]) == 2
    assert "give it up with cape simulate --replace" in capsys.readouterr().err
    assert (out / "consortium" / "privacy.json").read_bytes() == evidence
    # And it can be repeated from what lies there, into another folder.
    # It told of an option that `cape rerun` has not.
    assert main(["rerun", str(out), "--out", str(out)]) == 2
    assert "cape simulate --replace" in capsys.readouterr().err
    assert main(["rerun", str(out), "--out", str(tmp_path / "again")]) == 0
    assert maps(tmp_path / "again" / "consortium") == maps(out / "consortium")
    assert main(["rerun", str(data), "--out", str(tmp_path / "third")]) == 2
    assert "holds no finished run" in capsys.readouterr().err
    kept = out / "consortium" / "settings.json"
    owner = read_settings(kept, {})
    assert owner.config.settings() == json.loads(kept.read_text())["settings"]


def test_a_run_whose_data_were_moved_says_so_and_stays(data, tmp_path, capsys) -> None:
    """It ended with an error of the system, without a code or what to do."""

    def stop(line: object) -> None:
        raise KeyboardInterrupt

    there, out, ended = tmp_path / "there", tmp_path / "out", tmp_path / "ended"
    shutil.copytree(data, there)
    simulate(there, out=ended, settings=SETTINGS, seed=3)
    with pytest.raises(KeyboardInterrupt):
        simulate(there, out=out, settings=SETTINGS, seed=3, on_progress=stop)
    there.rename(tmp_path / "moved")
    for line in (["resume", str(out)], ["rerun", str(ended), "--out", str(tmp_path / "again")]):
        assert main(line) == 2
        assert "E264 the folder with its data is not there; put it back" in capsys.readouterr().err
    (tmp_path / "moved").rename(there)
    assert main(["resume", str(out), "--quiet"]) == 0


def test_a_stopped_run_is_not_given_up_unless_that_is_typed(data, tmp_path, capsys) -> None:
    """Its folder was emptied without a word, and with it what could be resumed."""

    def stop(line: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "my out"  # a command with it was printed without quotes
    with pytest.raises(KeyboardInterrupt):
        simulate(data, out=out, settings=SETTINGS, seed=3, on_progress=stop)
    held = (out / ".work" / "run.json").read_bytes()
    given = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    line = ["simulate", str(data), "--out", str(out), "--seed", "3", "--quiet", *given]
    assert main(line) == 2
    told = f"go on with: cape resume '{out}'; or give it up with cape simulate --replace"
    assert told in capsys.readouterr().err
    assert (out / ".work" / "run.json").read_bytes() == held
    assert main([*line, "--replace"]) == 0
    with pytest.raises(KeyboardInterrupt):  # of two runs only the finished one was named
        simulate(data, out=out, settings=SETTINGS, seed=3, on_progress=stop)
    assert main(line) == 2
    told = f"go on with what was to replace it: cape resume '{out}'; or choose another --out"
    assert told in capsys.readouterr().err
    assert main([*line, "--replace"]) == 0


KILLED = """
import sys
from pathlib import Path
from cape.report import consortium_page, site_page
consortium_page.render = site_page.render_site = lambda folder: folder / "index.html"
from cape.simulation.simulate import resume, simulate
import json
data, out, through = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[4]
settings = json.loads(sys.argv[3])
if (out / ".work" / "run.json").exists():
    resume(out)
else:
    simulate(data, out=out, settings=settings, seed=3, through=through)
"""


def exchange_of(out: Path) -> int:
    try:
        return json.loads((out / ".work" / "run.json").read_bytes())["exchange"]
    except (OSError, ValueError):
        return 0


@pytest.mark.parametrize("through", ["wire", pytest.param("process", marks=pytest.mark.slow)])
def test_kill_9_of_the_simulator_itself_at_random_moments(
    data, undisturbed, tmp_path, through
) -> None:
    """The moments are drawn anew each time; whatever they are, the maps are the same."""
    rng = np.random.default_rng()
    kills = 0
    command = [sys.executable, "-c", KILLED, str(data), str(tmp_path), json.dumps(SETTINGS),
               through]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    while True:
        process = subprocess.Popen(command, env=environment)
        target = exchange_of(tmp_path) + int(rng.integers(1, 4))
        while process.poll() is None and exchange_of(tmp_path) < min(target, 7):
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.05 if through == "wire" else 0.5))
        if process.poll() is None and exchange_of(tmp_path) < 7:
            process.send_signal(signal.SIGKILL)
            kills += 1
        if process.wait() == 0:
            break
        assert process.returncode == -signal.SIGKILL
    assert kills >= 1
    assert maps(tmp_path / "consortium") == undisturbed["ring"]
    assert not (tmp_path / ".work").exists()


def test_the_site_is_shown_what_all_runs_on_its_data_have_spent(data, tmp_path, capsys) -> None:
    policy = SitePolicy.of_simulation(private_results=True, max_total=((130.0, 1e-5),),
                        ledger_file=str(tmp_path / "ledger.jsonl"))  # fmt: skip
    again = {**SETTINGS, "epsilon": 25.0}
    for name, settings in (("one", SETTINGS), ("two", again)):
        simulate(data, out=tmp_path / name, settings=settings, policy=policy)
    runs = read_ledger(tmp_path / "ledger.jsonl").runs
    assert len(runs) == 6
    told = json.loads((tmp_path / "two" / "local1" / "cape-site.json").read_text())["all_runs"]
    assert told["runs"] == 2
    assert 100.0 < told["epsilon"] < 130.0
    page = drawn(tmp_path / "two" / "local1" / "private").read_text()
    assert f"Over all 2 runs on the same people: epsilon {told['epsilon']:.6g}" in page
    assert main(["ledger", str(tmp_path / "ledger.jsonl"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["runs"]
    assert [row["all_runs"] for row in shown] == [2] * 6
    assert {round(row["all_epsilon"], 6) for row in shown} == {round(told["epsilon"], 6)}
    assert main(["ledger", str(tmp_path / "ledger.jsonl")]) == 0
    assert "6 runs" in capsys.readouterr().out
    # A third run does not fit: every site refuses by itself, in join, and says nothing more.
    with pytest.raises(CapeError) as caught:
        simulate(data, out=tmp_path / "three", settings=SETTINGS, policy=policy)
    assert caught.value.public == "CAPE-E154 Site policy of site local0 refuses this run."
    assert "max_total" in caught.value.detail
    assert read_ledger(tmp_path / "ledger.jsonl").runs == runs


def test_the_policy_command_shows_every_key(tmp_path, capsys) -> None:
    path = tmp_path / "p.toml"
    path.write_text('max_sites = 9\ndataset_id = "cohort"\n')
    assert main(["policy", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["policy"]["max_sites"], shown["policy"]["dataset_id"]) == (9, "cohort")
    assert shown["software"].startswith("code:")
    assert main(["policy", str(path)]) == 0
    assert "min_subjects = 3" in capsys.readouterr().out
    path.write_text("max_site = 9\n")
    assert main(["policy", str(path)]) == 2
    assert "did you mean 'max_sites'" in capsys.readouterr().err
