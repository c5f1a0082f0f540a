"""A simulation that was stopped goes on by the same command, with nothing in its way.

Belongs to `cape/simulation/simulate.py`.
"""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cape.cli import main
from cape.engines.coinstac import site as site_half
from cape.engines.coinstac.documents import reply_document
from cape.errors import CapeError, CapeWarning, ConfigError, StoppedError
from cape.planning.consortium_folder import read_settings
from cape.privacy.accounting import display_epsilon
from cape.protocol import phases, wire
from cape.python import api
from cape.report.site_page import render_site as drawn
from cape.simulation import going_on, run_loop
from cape.simulation import simulate as module
from cape.site.context import SiteContext
from cape.site.files import folder_lock
from cape.site.ledger_file import read_ledger
from cape.site.policy import SitePolicy
from support import consortium as helper
from support.simulation import simulate

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("no_pages")

SETTINGS = helper.settings_of("capedjica")
WAYS = ["memory", "wire", pytest.param("process", marks=pytest.mark.slow)]
# Room for one whole run and a part of another one
ROOM = ((130.0, 1e-5),)
NO_LIMIT = 'ledger_file = "ledger.jsonl"\nmax_total = []\nmax_run = []\n'


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return helper.write_data(tmp_path_factory.mktemp("data"))


def maps(folder: Path) -> dict[str, bytes]:
    with np.load(folder / "unmixing.npz", allow_pickle=False) as stored:
        return {name: stored[name].tobytes() for name in sorted(stored.files)}


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory) -> dict[str, bytes]:
    with helper.without_pages():
        return maps(simulate(data, out=tmp_path_factory.mktemp("out"), settings=SETTINGS, seed=3))


def stop_at(exchange: int):
    def on_progress(line) -> None:
        if line.exchange == exchange:
            raise KeyboardInterrupt

    return on_progress


def of_ledger(folder: Path, **named: object) -> SitePolicy:
    ledger = str(folder / "ledger.jsonl")
    return SitePolicy.of_simulation(ledger_file=ledger, max_total=ROOM, **named)


def words(data: Path, folder: Path, policy: str = "") -> list[str]:
    """The command as it is typed, with a policy file of this text."""
    named = ["--policy", str(folder / "policy.toml")] if policy else []
    (folder / "policy.toml").write_text(policy)
    given = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    return ["simulate", str(data), "--out", str(folder / "out"), *named, *given]


def states(ledger: Path) -> list[str]:
    return [run.state for run in read_ledger(ledger).runs]


@pytest.mark.parametrize("through", WAYS)
def test_a_run_that_was_stopped_goes_on(data, undisturbed, tmp_path, through) -> None:
    """It began, and charged, anew: a power cut near the end of a run cost its whole epsilon."""
    given = {"out": tmp_path / "out", "settings": SETTINGS, "seed": 3, "through": through}
    with pytest.raises(KeyboardInterrupt):
        simulate(data, **given, replace=False, on_progress=stop_at(5))
    kept = tmp_path / "out" / ".work" / "state.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600  # it has keys of the run
    played = []
    with pytest.warns(CapeWarning, match="goes on at exchange 6 of 8, where it was stopped"):
        folder = simulate(data, **given, replace=False, on_progress=played.append)
    assert played[0].exchange == 6
    assert maps(folder) == undisturbed
    assert not kept.parent.exists()


@pytest.mark.parametrize("private", [True, False])
def test_only_a_run_that_is_private_goes_on_with_its_charges(data, tmp_path, private) -> None:
    """A run without noise said "only the rest of its plan is charged"."""
    settings = {name: value for name, value in SETTINGS.items() if name not in ("epsilon", "delta")}
    settings = SETTINGS if private else {**settings, "private": False}
    given = {"out": tmp_path / "out", "settings": settings, "replace": False}
    with pytest.raises(KeyboardInterrupt):
        simulate(data, **given, on_progress=stop_at(5))
    with pytest.warns(CapeWarning, match="where it was stopped") as said:
        simulate(data, **given)
    (text,) = (one for each in said if "was stopped" in (one := str(each.message)))
    assert ("is charged" in text) is private


def test_what_a_run_itself_writes_among_its_data_does_not_stop_it_from_going_on(data, tmp_path):
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    ledger, policy = folder / "local1" / "ledger.jsonl", of_ledger(folder / "local1")
    given = {"out": tmp_path / "out", "settings": SETTINGS, "policy": policy, "replace": False}
    with pytest.raises(KeyboardInterrupt):
        simulate(folder, **given, on_progress=stop_at(5))
    assert any(run.charges for run in read_ledger(ledger).runs)
    (folder / "local1" / ".DS_Store").write_text("a window was opened")
    with pytest.warns(CapeWarning, match="goes on"):
        simulate(folder, **given)
    assert states(ledger) == ["finished"] * 3


class Killed(BaseException):
    """The process is gone: nothing behind this is done."""


@pytest.mark.filterwarnings("ignore::cape.errors.CapeWarning")  # it says each time that it goes on
@pytest.mark.parametrize(
    ("through", "computation", "asked"),
    [
        ("memory", "capedjica", {"n_rounds": 1}),
        ("wire", "capedjica", {"n_rounds": 1}),
        pytest.param(
            "memory", "capedjica", {"n_rounds": 2, "aggregation": "secagg"}, marks=pytest.mark.slow
        ),
        pytest.param("memory", "capecontrast", {}, marks=pytest.mark.slow),
    ],
)
def test_a_run_killed_at_every_charge_and_exchange_answers_and_pays_once(
    tmp_path, monkeypatch, through, computation, asked
) -> None:
    """Noise is the system's: a round that went on with other noise would be told twice."""
    leaves = "aggregation" in asked  # the fourth site
    people = {f"local{s}": helper.subjects(4, seed=s) for s in range(3 + leaves)}
    folder = helper.write_data(tmp_path / "data", people, computation)
    settings = helper.settings_of(computation, **asked)
    ledger, seen, sent = tmp_path / "ledger.jsonl", set(), {}
    policy = of_ledger(tmp_path, private_results=True)
    charge, respond = SiteContext.charge, phases.respond

    def once(*moment: object) -> None:
        if moment not in seen:
            seen.add(moment)
            raise Killed

    def charging(party, event):
        charge(party, event)
        once("charged", party.id, event.phase, event.round, event.field)

    def responding(run, party):
        run, envelope = respond(run, party)
        if envelope.seq > 1:  # a `join` that nobody heard of is another run
            digest = wire.dumps(reply_document(envelope))
            assert sent.setdefault((party.id, envelope.seq), digest) == digest
            once("answered", party.id, envelope.seq)
        return run, envelope

    monkeypatch.setattr(SiteContext, "charge", charging)
    for where in (phases, site_half):
        monkeypatch.setattr(where, "respond", responding)
    monkeypatch.setattr(module, "_leave_run", lambda work, sites: None)
    given = {"out": tmp_path / "out", "settings": {"computation": computation, **settings},
             "policy": policy, "through": through, "replace": False,
             "drops": ["local3@iterate:2"] if leaves else []}  # fmt: skip
    for _ in range(500):
        try:
            out = simulate(
                folder, on_progress=lambda line: once("exchange", line.exchange), **given
            )
            break
        except Killed:
            continue
    planned = json.loads((out / "privacy.json").read_text())["ledger"]["entries"]
    runs = [run for run in read_ledger(ledger).runs if run.charges]
    assert [run.state for run in runs].count("finished") == 3
    assert len(runs) == 3 + leaves
    for run in runs:
        whole = [(entry["phase"], entry["round"], entry["mu2"]) for entry in planned]
        charged = [(c.phase, c.round, c.mu2) for c in run.charges]
        assert charged == whole if run.state == "finished" else charged == whole[: len(charged)]
    assert len([at for at in seen if at[0] == "charged"]) == sum(len(run.charges) for run in runs)
    # What a site tells its people that it sent is told once, too.
    lines = (out.parent / "local1" / "private" / "sent.jsonl").read_text().splitlines()
    told = [json.loads(line)["seq"] for line in lines]
    assert told == sorted({1} | {seq for site, seq in sent if site == "local1"})


@pytest.mark.parametrize("what", ["setting", "file", "version", "policy"])
def test_a_stopped_run_goes_on_only_as_it_began(data, tmp_path, monkeypatch, what) -> None:
    """A round asked of other people would be answered twice at one charge."""
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    given = {"out": tmp_path / "out", "settings": dict(SETTINGS), "seed": 3, "replace": False}
    with pytest.raises(KeyboardInterrupt):
        simulate(folder, **given, on_progress=stop_at(5))
    named = what
    if what == "setting":
        given["settings"]["n_rounds"], named = 3, r"settings n_rounds \(was 2, is 3\)"
    elif what == "file":
        changed = next(path for path in sorted((folder / "local1").iterdir()) if path.is_file())
        changed.write_bytes(changed.read_bytes() + b" ")
        named = f"files of local1 {changed.name}"
    elif what == "version":
        monkeypatch.setattr(going_on, "VERSION", "9.9.9")
    else:
        given["policy"] = SitePolicy.of_simulation(min_subjects=2)
        named = "policy min_subjects"
    kept = sorted((tmp_path / "out" / ".work").rglob("*"))
    with pytest.raises(ConfigError, match=f"E016.*differs in {named}.*--replace"):
        simulate(folder, **given)
    assert sorted((tmp_path / "out" / ".work").rglob("*")) == kept
    begun = []
    simulate(folder, **{**given, "replace": True}, on_progress=begun.append)
    assert begun[0].exchange == 1


@pytest.mark.parametrize("through", WAYS)
def test_a_stopped_run_holds_nothing_in_ledgers(data, tmp_path, through) -> None:
    given = {"out": tmp_path / "out", "settings": SETTINGS, "through": through,
             "policy": of_ledger(tmp_path)}  # fmt: skip
    seen = []

    def stop(line) -> None:
        if line.phase.startswith("zero-sum"):
            seen.extend(states(tmp_path / "ledger.jsonl"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(data, **given, on_progress=stop)
    assert seen == ["held"] * 3
    assert "held" not in states(tmp_path / "ledger.jsonl")
    simulate(data, **given)
    assert states(tmp_path / "ledger.jsonl").count("finished") == 3


def test_sigterm_ends_a_run_as_ctrl_c_does(data, tmp_path, monkeypatch, capsys) -> None:
    """Of a cluster or of timeout: it left the run's plan held, and said nothing."""
    real = run_loop.progress_line
    before = lambda *_: pytest.fail("nobody heard the signal")  # noqa: E731
    outside = signal.signal(signal.SIGTERM, before)
    ledger, line = tmp_path / "ledger.jsonl", words(data, tmp_path, NO_LIMIT)

    def told(exchange, *rest):
        if exchange == 5:
            assert set(states(ledger)) == {"held"}
            signal.raise_signal(signal.SIGTERM)
        return real(exchange, *rest)

    monkeypatch.setattr(run_loop, "progress_line", told)
    assert main(line) == 128 + signal.SIGTERM
    assert "the same command goes on where it stopped" in capsys.readouterr().err
    assert set(states(ledger)) == {"failed"}
    assert signal.signal(signal.SIGTERM, outside) is before
    monkeypatch.setattr(run_loop, "progress_line", real)
    assert main(line) == 0
    assert set(states(ledger)) == {"finished"}


KILLED = """
import json, os, signal, sys
from pathlib import Path
from cape.report import consortium_page, site_page
consortium_page.render = site_page.render_site = lambda folder: folder / "index.html"
from cape.simulation.run_loop import RunOptions
from cape.simulation.simulate import simulate
from cape.site.policy import SitePolicy
data, out, ledger, settings, through, total = map(json.loads, sys.argv[1:])
policy = SitePolicy.of_simulation(ledger_file=ledger, max_total=tuple(map(tuple, total)))

def kill(line):
    if line.phase.startswith("zero-sum"):
        os.kill(os.getpid(), signal.SIGKILL)

simulate(Path(data), RunOptions(out=Path(out), settings=settings, policy=policy, through=through,
                                on_progress=kill))
"""


@pytest.mark.parametrize("through", WAYS)
def test_a_killed_run_keeps_its_place_in_ledgers(data, tmp_path, through) -> None:
    """Its process could free nothing: for an hour no other run had room, not even itself."""
    ledger, out = tmp_path / "ledger.jsonl", tmp_path / "out"
    given = (str(data), str(out), str(ledger), SETTINGS, through, ROOM)
    line = [sys.executable, "-c", KILLED, *map(json.dumps, given)]
    done = subprocess.run(line, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert states(ledger) == ["held"] * 3
    policy = of_ledger(tmp_path)
    with pytest.raises(CapeError, match="E236"):  # another folder: perhaps it still runs
        simulate(data, out=tmp_path / "other", settings=SETTINGS, policy=policy)
    with pytest.warns(CapeWarning, match="goes on at exchange 3 of 8"):
        simulate(data, out=out, settings=SETTINGS, policy=policy, through=through, replace=False)
    assert "held" not in states(ledger)
    assert states(ledger) == ["finished"] * 3
    assert not (out / ".work").exists()


KILLED_AT_THE_END = """
import json, os, shutil, signal, sys, warnings
from pathlib import Path
from cape.errors import ConfigError
from cape.report import consortium_page, site_page
consortium_page.render = site_page.render_site = lambda folder: folder / "index.html"
from cape.simulation import simulate as module
from cape.simulation.run_loop import RunOptions
from cape.site.policy import SitePolicy
data, out, settings, through, rerun = map(json.loads, sys.argv[1:])
warnings.simplefilter("ignore")
policy = SitePolicy.of_simulation(private_results=True)
given = RunOptions(out=Path(out), settings=settings, seed=3, policy=policy, through=through,
                   replace=False, all_pages=True)
run = module.rerun if rerun else module.simulate
ended, kept = Path(out), Path(out + "-kept")
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir"}
count, last = None, 0

def look(event, values):
    global count
    if count is not None and (event in CHANGES or event == "open" and values[2] & 3):
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(look)
collect = module._collect

def collecting(*given):
    global count
    if not kept.exists():
        shutil.copytree(ended, kept)
    count = 0
    collect(*given)

module._collect = collecting
said = []
while True:
    last += 1
    if (child := os.fork()) == 0:
        run(Path(data), given)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    whole, left = os.WIFEXITED(status), (ended / ".work").exists()
    if whole and status:
        raise SystemExit(f"at change {last}")
    if not whole:
        module._collect = collect
        before = module.may_go_on(ended)
        try:
            run(Path(data), given)
            said.append("went on" if before else "began anew")
        except ConfigError as err:
            said.append(err.public)
        module._collect = collecting
    sites = sorted(path.parts[-3] for path in ended.glob("local*/private/site.json"))
    there = [(ended / name).is_file() for name in ("run.json", "consortium/unmixing.npz")]
    if not (len(sites) == 3 and all(there)) or module.may_go_on(ended):
        raise SystemExit(f"at change {last}: {said[-1:]}, {sites}, {there}")
    if whole:
        break
    shutil.rmtree(ended)
    shutil.copytree(kept, ended)
print(json.dumps(said))
"""


@pytest.mark.parametrize(
    ("through", "is_rerun"),
    [
        ("memory", False),
        ("memory", True),
        ("wire", False),
        pytest.param("process", False, marks=pytest.mark.slow),
    ],
)
def test_a_run_killed_at_any_change_while_results_are_put_in_place_ends_or_has_ended(
    data, undisturbed, tmp_path, through, is_rerun
) -> None:
    """Killed between the common results and run.json it was refused as finished: no command ended
    it, and none repeated it.  A working folder half deleted was gone on with."""
    begun, out = data, tmp_path / "out"
    if is_rerun:
        begun = tmp_path / "first"
        policy = SitePolicy.of_simulation(private_results=True)
        simulate(data, out=begun, settings=SETTINGS, seed=3, through=through, policy=policy)
    given = (str(begun), str(out), SETTINGS, through, is_rerun)
    words = [sys.executable, "-c", KILLED_AT_THE_END, *map(json.dumps, given)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert len(said) > 10
    # What is gone first is what says that the run goes on.
    finished = [text for text in said if "holds a finished run" in text]
    assert said == ["went on"] * (len(said) - len(finished)) + finished
    assert maps(out / "consortium") == undisturbed


def test_a_run_whose_results_were_moved_away_begins_anew(data, tmp_path, monkeypatch) -> None:
    """`make run` moves earlier results; killed behind its last file a run ended without any."""
    given = {"out": tmp_path / "out", "settings": SETTINGS, "seed": 3, "replace": False}

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module.RunSetup, "write", stop)
        with pytest.raises(KeyboardInterrupt):
            simulate(data, **given)
    (tmp_path / "out" / "consortium").rename(tmp_path / "moved")
    played = []
    assert maps(simulate(data, **given, on_progress=played.append)) == maps(tmp_path / "moved")
    assert played[0].exchange == 1


def test_what_was_begun_with_replace_goes_on_without_it(data, tmp_path, monkeypatch, capsys):
    """ "The same command goes on" was said, and with --replace it began, and charged, anew; without
    it the run that was there before was in the way."""
    real = run_loop.progress_line

    def line_of(exchange, *rest):
        if exchange == 5 and len(replaced) == 1:
            replaced.append("stopped")
            raise KeyboardInterrupt
        return real(exchange, *rest)

    replaced: list[str] = []
    monkeypatch.setattr(run_loop, "progress_line", line_of)
    given = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    line = ["simulate", str(data), "--out", str(tmp_path / "out"), *given]
    assert main(line) == 0
    replaced.append("begun")
    assert main([*line, "--replace"]) == 130
    said = " ".join(capsys.readouterr().err.split())
    assert "the same command without --replace goes on where it stopped" in said
    assert main(line) == 0
    assert "goes on at exchange 6" in " ".join(capsys.readouterr().err.split())


def test_a_run_with_a_drawn_seed_goes_on_with_it(data, tmp_path) -> None:
    """It began anew, with another seed, below a line that said it goes on."""
    given = {"out": tmp_path / "out", "replace": False}
    given["settings"] = {"computation": "dpdjica", **helper.settings_of("dpdjica")}
    with pytest.raises(KeyboardInterrupt):
        simulate(data, **given, on_progress=stop_at(2))
    begun = json.loads((tmp_path / "out" / ".work" / "begun.json").read_text())
    played = []
    with pytest.warns(CapeWarning, match="goes on at exchange 3"):
        simulate(data, **given, on_progress=played.append)
    assert played[0].exchange == 3
    setup = json.loads((tmp_path / "out" / "run.json").read_text())
    assert setup["policy"]["simulation_seed"] == begun["policy"]["simulation_seed"] >= 0


@pytest.mark.parametrize("through", ["memory", "wire"])
def test_after_a_full_disk_a_run_is_started_again(
    data, undisturbed, tmp_path, monkeypatch, through
) -> None:
    real = os.fsync
    count = iter(range(10**6))
    monkeypatch.setattr(os, "fsync", lambda handle: full() if next(count) > 1 else real(handle))

    def full():
        raise OSError(28, "No space left on device")

    given = {"out": tmp_path, "settings": SETTINGS, "seed": 3, "through": through}
    with pytest.raises((OSError, StoppedError)) as stop:
        simulate(data, **given, replace=False)
    assert run_loop.was_stopped(stop.value)
    monkeypatch.setattr(os, "fsync", real)
    assert maps(simulate(data, **given, replace=False)) == undisturbed
    assert not list(tmp_path.glob("local*/site-error.txt"))


def test_a_run_that_is_still_going_is_left_alone(data, tmp_path) -> None:
    (tmp_path / ".work").mkdir()
    (tmp_path / ".work" / "journal").write_text("of the other one")
    with folder_lock(tmp_path / ".work", "other"), pytest.raises(StoppedError, match="E263"):
        simulate(data, out=tmp_path, settings=SETTINGS, seed=3)
    assert (tmp_path / ".work" / "journal").is_file()


def test_a_refused_run_is_not_called_stopped(data, tmp_path, capsys) -> None:
    assert main(words(data, tmp_path, "veto = true\n")) == 3
    assert "the same command" not in capsys.readouterr().err


def test_the_command_says_how_to_start_again_and_never_replaces_a_finished_run(
    data, undisturbed, tmp_path, monkeypatch, typed
) -> None:
    real = run_loop.progress_line
    monkeypatch.setattr(
        run_loop, "progress_line",
        lambda exchange, *rest: stop() if exchange == 5 else real(exchange, *rest),
    )  # fmt: skip

    def stop():
        raise KeyboardInterrupt

    out, line = tmp_path / "out", [*words(data, tmp_path), "--seed", "3"]
    assert "the same command goes on where it stopped" in typed(*line, code=130).err
    monkeypatch.setattr(run_loop, "progress_line", real)
    told = [json.loads(text) for text in typed(*line, "--json").out.splitlines()]
    assert next(one["exchange"] for one in told if "exchange" in one) == 6
    assert maps(out / "consortium") == undisturbed
    # A finished run is evidence: it was replaced without a word.
    evidence = (out / "consortium" / "privacy.json").read_bytes()
    assert "give it up with cape simulate --replace" in typed(*line, code=2).err
    assert (out / "consortium" / "privacy.json").read_bytes() == evidence
    # And it can be repeated from what lies there, into another folder.
    # It told of an option that `cape rerun` has not.
    assert "cape simulate --replace" in typed("rerun", str(out), "--out", str(out), code=2).err
    assert main(["rerun", str(out), "--out", str(tmp_path / "again")]) == 0
    assert maps(tmp_path / "again" / "consortium") == maps(out / "consortium")
    assert (
        "holds no finished run"
        in typed("rerun", str(data), "--out", str(tmp_path / "third"), code=2).err
    )
    kept = out / "consortium" / "settings.json"
    owner = read_settings(kept, {})
    assert owner.config.settings() == json.loads(kept.read_text())["settings"]
    assert main([*line, "--replace"]) == 0


def test_a_stopped_run_says_what_it_charged_and_goes_on_without_a_second_charge(
    data, tmp_path, monkeypatch, capsys
) -> None:
    """It said only that the same command starts it again: half of a year's budget was gone."""
    real = run_loop.progress_line
    ledger, line = tmp_path / "ledger.jsonl", words(data, tmp_path, NO_LIMIT)

    def stop(exchange, *rest):
        line = real(exchange, *rest)
        if any(run.charges for run in read_ledger(ledger).runs):
            raise KeyboardInterrupt
        return line

    monkeypatch.setattr(run_loop, "progress_line", stop)
    assert main(line) == 130
    said = " ".join(capsys.readouterr().err.split())
    runs = read_ledger(ledger).runs
    spent = display_epsilon(max(run.cost.epsilon(run.delta) or 0.0 for run in runs))
    assert f"Epsilon {spent} was charged and stays" in said
    assert "going on charges the rest of its plan" in said
    assert "a run that is stopped keeps its charges; typed again, it goes on" in said  # before
    monkeypatch.setattr(run_loop, "progress_line", real)
    assert main(line) == 0
    assert "goes on at" in capsys.readouterr().err
    assert len(read_ledger(ledger).runs) == len(runs)
    assert main(["rerun", str(tmp_path / "out"), "--out", str(tmp_path / "again")]) == 0
    assert "charges this run again" in capsys.readouterr().err
    assert len(read_ledger(ledger).runs) == 2 * len(runs)


def test_a_run_whose_data_were_moved_says_so_when_it_is_repeated(data, tmp_path, capsys) -> None:
    """It ended with an error of the system, without a code or what to do."""
    there, ended = tmp_path / "there", tmp_path / "ended"
    shutil.copytree(data, there)
    simulate(there, out=ended, settings=SETTINGS, seed=3)
    there.rename(tmp_path / "moved")
    assert main(["rerun", str(ended), "--out", str(tmp_path / "again")]) == 2
    assert "E264 the folder with its data is not there; put it back" in capsys.readouterr().err


def test_the_site_is_shown_what_all_runs_on_its_data_have_spent(data, tmp_path, typed) -> None:
    policy = of_ledger(tmp_path, private_results=True)
    again = {**SETTINGS, "epsilon": 32.0}
    for name, settings in (("one", SETTINGS), ("two", again)):
        simulate(data, out=tmp_path / name, settings=settings, policy=policy)
    runs = read_ledger(tmp_path / "ledger.jsonl").runs
    assert len(runs) == 6
    told = json.loads((tmp_path / "two" / "local1" / "cape-site.json").read_text())["all_runs"]
    assert told["runs"] == 2
    assert 100.0 < told["epsilon"] < 130.0
    page = drawn(tmp_path / "two" / "local1" / "private").read_text()
    said = f"Over all 2 runs on the same people: epsilon {display_epsilon(told['epsilon'])}"
    assert said in page
    shown = json.loads(typed("ledger", str(tmp_path / "ledger.jsonl"), "--json").out)["runs"]
    assert [row["all_runs"] for row in shown] == [2] * 6
    assert {round(row["all_epsilon"], 6) for row in shown} == {round(told["epsilon"], 6)}
    assert "6 runs" in typed("ledger", str(tmp_path / "ledger.jsonl")).out
    # A third run does not fit: every site refuses by itself, in join, and says nothing more.
    with pytest.raises(CapeError) as caught:
        simulate(data, out=tmp_path / "three", settings=SETTINGS, policy=policy)
    assert caught.value.public == "CAPE-E154 Site policy of site local0 refuses this run."
    assert "max_total" in caught.value.detail
    assert read_ledger(tmp_path / "ledger.jsonl").runs == runs


def test_the_policy_command_shows_every_key(tmp_path, typed) -> None:
    path = tmp_path / "p.toml"
    path.write_text('max_sites = 9\ndataset_id = "cohort"\n')
    shown = json.loads(typed("policy", str(path), "--json").out)
    assert (shown["policy"]["max_sites"], shown["policy"]["dataset_id"]) == (9, "cohort")
    assert shown["software"].startswith("code:")
    assert "min_subjects = 3" in typed("policy", str(path)).out
    path.write_text("max_site = 9\n")
    assert "did you mean 'max_sites'" in typed("policy", str(path), code=2).err


@pytest.mark.parametrize("through", ["docker", "coinstac", "nvflare"])
def test_what_cannot_go_on_says_so_before_anything_is_lost(
    data, tmp_path, monkeypatch, capsys, through
) -> None:
    """Through COINSTAC or containers nothing was said: after a night the run began anew."""

    def stopped(*folders, **given) -> None:
        said = " ".join(capsys.readouterr().err.split())
        assert "that is stopped cannot go on: typed again, it begins" in said
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "simulate", stopped)
    given = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    line = ["simulate", str(data), "--out", str(tmp_path / "out"), "--through", through, *given]
    assert main(line) == 130
    assert "the same command starts it again" in " ".join(capsys.readouterr().err.split())
    policy = tmp_path / "policy.toml"
    policy.write_text('ledger_file = "ledger.jsonl"\nmax_total = []\nmax_run = []\n')
    monkeypatch.setattr(api, "simulate", lambda *folders, **given: stopped())
    assert main([*line, "--policy", str(policy)]) == 130


@pytest.mark.parametrize(
    ("replace", "said"),
    [
        (False, "charges; typed again, it goes on"),
        (True, "typed again without --replace, it goes on"),
    ],
)
def test_how_a_charged_run_goes_on_is_said_before_it_begins(
    data, tmp_path, monkeypatch, capsys, replace, said
) -> None:
    """With --replace the line that was typed begins, and charges, anew."""

    def stopped(*folders, **given) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "simulate", stopped)
    policy = tmp_path / "policy.toml"
    policy.write_text('ledger_file = "ledger.jsonl"\nmax_total = []\nmax_run = []\n')
    line = ["simulate", str(data), "--out", str(tmp_path / "out"), "--policy", str(policy)]
    given = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    assert main([*line, *given, *["--replace"] * replace]) == 130
    assert said in " ".join(capsys.readouterr().err.split())
