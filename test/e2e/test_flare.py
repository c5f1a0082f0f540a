"""NVIDIA FLARE itself: its simulator, and provisioned with mTLS on the loopback.

At every push (`make test-flare`) maps over mTLS, tables in the simulator; `make test-trust`: all.
Nothing is emulated.  The marker `flare` keeps these tests out of the default run, which has no
nvflare; what needs none is in test/unit/engines/flare/test_rounds.py.
"""

import os
import shutil
import signal
from pathlib import Path

import pytest

from cape.cli import main
from cape.python.api import simulate
from cape.report import add_score
from cape.simulation.simulate import compare_with_truth
from cape.site.policy import SitePolicy
from support import consortium as helper
from support.comparison_study import write_study
from support.federation import ROOT, SERVER, Federation
from support.flare import contents

pytestmark = [
    pytest.mark.flare,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SEED = 11
POLICY = SitePolicy.of_simulation(private_results=True, simulation_seed=SEED)
SITES = ("local0", "local1", "local2", "local9")
SETTINGS = helper.settings_of(
    "capedjica", n_rounds=40, n_sites=len(SITES), site_names=",".join(SITES)
)
CONTRAST = helper.settings_of(
    "capecontrast", computation="capecontrast", n_sites=len(SITES), site_names=",".join(SITES)
)
SECAGG = {**SETTINGS, "aggregation": "secagg", "min_survivors": 3}
PATIENCE = 8
CANARY = "CANARY7f3a"
"""Stands in the name of a file of every site, and in the private text of a refusal."""


def of_sites():
    return {**helper.datasets(), "local9": helper.subjects(5, seed=99)}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = helper.write_data(
        tmp_path_factory.mktemp("flare") / "data", of_sites(), "capecontrast"
    )
    for site in folder.iterdir():
        (site / "sub-00.npy").rename(site / f"{CANARY}.npy")
    return folder


@pytest.fixture(scope="module")
def memory(data, tmp_path_factory):
    """What `memory` makes of the same seed: a function of the settings and the drop-outs."""
    made: dict[str, Path] = {}

    def results(settings, *drops: str) -> dict[str, bytes]:
        key = repr((sorted(settings.items()), drops))
        if key not in made:
            with helper.without_pages():
                made[key] = simulate(
                    data, out=tmp_path_factory.mktemp("memory"), settings=settings, seed=SEED,
                    policy=POLICY, drops=drops,
                )  # fmt: skip
        # The parties of FLARE are processes of their own, which write their pages.
        return without_pages(contents(made[key]))

    return results


def without_pages(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: raw for name, raw in files.items() if not name.endswith((".html", ".png"))}


@pytest.fixture(scope="module")
def federation(data, tmp_path_factory):
    made = Federation(tmp_path_factory.mktemp("federation"), data, POLICY)
    try:
        made.start()
        made.connected()
        yield made
    finally:
        made.stop()


def job_of(folder: Path, settings, *words: str) -> Path:
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    people = ["--subjects", str(sum(map(len, of_sites().values())))]
    options = [*people, "--patience", str(PATIENCE), "--join-patience", "60"]
    assert main(["flare", "job", str(folder), *given, *options, *words]) == 0
    return folder


def scored(results: Path, tmp_path: Path) -> dict[str, bytes]:
    """Results of a run after the step that `simulate` adds to those of every carrier."""
    folder = tmp_path / "scored"
    shutil.copytree(results, folder)
    q_ngi, correlation = compare_with_truth(tmp_path / "none.npz", folder / "unmixing.npz")
    add_score(folder, q_ngi=q_ngi, map_correlation=correlation, synthetic=False)
    return without_pages(contents(folder))


@pytest.mark.parametrize("what", [pytest.param("columns", marks=pytest.mark.push), "images"])
def test_groups_are_compared_with_the_bytes_of_memory(tmp_path, monkeypatch, what):
    """Of images with maps that lie in no site's folder."""
    study, asked = write_study(tmp_path, what)
    hidden = helper.no_pictures(tmp_path / "hidden")
    monkeypatch.setenv("PYTHONPATH", f"{hidden}{os.pathsep}{ROOT}")
    found = {}
    for how in ("memory", "nvflare"):
        with helper.without_pages():
            out = simulate(study, out=tmp_path / how, through=how, **asked)
        found[how] = without_pages(contents(out))
    assert found["memory"] == found["nvflare"]
    assert "effects.tsv" in found["memory"]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(SETTINGS, id="maps", marks=pytest.mark.push),
        pytest.param(CONTRAST, id="groups"),
    ],
)
def test_over_mtls_all_parties_have_the_files_of_memory(federation, memory, tmp_path, settings):
    job = job_of(tmp_path / "job", settings)
    job_id = federation.submit(job)
    assert federation.reached(job, 10_000).ended
    rounds = federation.rounds(job)
    assert scored(rounds.results, tmp_path) == memory(settings)
    federation.wait(lambda: "FINISHED" in federation.status(job_id), 60)
    assert federation.status(job_id) == "FINISHED:COMPLETED"
    for site in federation.sites:
        home = federation.runs(site) / rounds.home.name
        assert contents(home / "consortium") == contents(rounds.results)
        assert (home / "output" / "private" / "sent.jsonl").is_file()
        assert not list(home.glob("cache*"))


def kill_at(federation: Federation, job: Path, exchange: int, kill) -> str:
    """Submit a job, let `kill` happen after an exchange, and return the job's id."""
    job_id = federation.submit(job)
    state = federation.reached(job, exchange)
    assert not state.ended
    kill()
    return job_id


def goes_on(federation: Federation, job: Path, after: int) -> None:
    """Submit the same job again: it begins where the run stands, and comes to its end."""
    before = federation.rounds(job).state()
    assert before is not None
    assert after <= before.iteration < 47
    federation.submit(job)
    assert federation.reached(job, 10_000).ended


def test_a_new_job_goes_on_when_a_sites_job_process_was_killed(federation, memory, tmp_path):
    """As by lack of memory.  FLARE fails the whole job then."""
    job = job_of(tmp_path / "job", SETTINGS)

    def kill() -> None:
        for pid in federation.jobs_of("local1"):
            os.kill(pid, signal.SIGKILL)

    job_id = kill_at(federation, job, 10, kill)
    federation.wait(lambda: "FINISHED" in federation.status(job_id), 60)
    assert federation.status(job_id) == "FINISHED:EXECUTION_EXCEPTION"
    goes_on(federation, job, 10)
    assert scored(federation.rounds(job).results, tmp_path) == memory(SETTINGS)


@pytest.mark.parametrize("who", ["server", "everybody"])
def test_a_new_job_goes_on_when_parties_were_killed(federation, memory, tmp_path, who):
    job = job_of(tmp_path / "job", SETTINGS)
    parties = (SERVER, *federation.sites) if who == "everybody" else (SERVER,)
    kill_at(federation, job, 10, lambda: federation.kill(*parties))
    federation.start(*parties)
    federation.connected()
    goes_on(federation, job, 10)
    assert scored(federation.rounds(job).results, tmp_path) == memory(SETTINGS)


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_with_drop_outs_the_survivors_of_a_host_finish(federation, memory, tmp_path, how):
    job = job_of(tmp_path / "job", SECAGG)
    frozen: list[int] = []

    def stop() -> None:
        if how == "killed":
            federation.kill("local1")
        for pid in federation.jobs_of("local1") if how == "frozen" else ():
            frozen.append(pid)
            os.kill(pid, signal.SIGSTOP)

    rounds, asked = federation.rounds(job), []

    def lost() -> bool:
        state = rounds.state()
        assert state is not None
        if "local1" in state.remaining:
            asked[:] = [state.input["phase"], state.input["round"]]
        return "local1" not in state.remaining

    try:
        job_id = kill_at(federation, job, 10, stop)
        # Twice its patience, and it is lost: nothing else happens in that time.
        federation.wait(lost, 20 * PATIENCE)
        state = federation.reached(job, 10_000)
        # FLARE waits for the lost site's word at the end: an owner saw RUNNING for minutes.
        federation.wait(lambda: "FINISHED" in federation.status(job_id), 120)
        assert federation.status(job_id) == "FINISHED:COMPLETED"
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGKILL)
        if how == "killed":
            federation.start("local1")
            federation.connected()
    assert state.ended
    assert state.remaining == ("local0", "local2", "local9")
    drop = f"local1@{asked[0]}:{asked[1]}"
    assert scored(rounds.results, tmp_path) == memory(SECAGG, drop)


def test_the_server_holds_nothing_of_a_sites_own(federation, tmp_path):
    """Of all jobs before, and of one that every site refuses for a reason of its own."""
    policies = {site: federation.policy(site).read_text() for site in federation.sites}
    for site in policies:
        federation.policy(site).write_text(f"{CANARY} = 1\n")
    job = job_of(tmp_path / "job", SETTINGS)
    try:
        federation.submit(job)
        error = federation.rounds(job).home / "output" / "site-error.txt"
        federation.wait(error.is_file, 120)
    finally:
        for site, text in policies.items():
            federation.policy(site).write_text(text)
    assert error.read_text().startswith("CAPE-E267 the site policy of site local0 cannot be used")
    home = federation.rounds(job).home.name
    private = [federation.runs(s) / home / "output" / "site-error.txt" for s in federation.sites]
    assert all(CANARY in path.read_text() for path in private)  # the sites know why
    words = [CANARY.encode(), *(str(federation.data / s).encode() for s in federation.sites)]
    places = [
        federation.kits / SERVER,
        federation.runs(SERVER),
        federation.folder / "localhost.out",
    ]
    files = [p for place in places for p in (place.rglob("*") if place.is_dir() else [place])]
    looked = [path for path in files if path.is_file()]
    names = {path.relative_to(federation.folder).as_posix() for path in looked}
    assert any("flare/jobs/" in name for name in names)
    # FLARE 2.9 makes none; one that does must be searched for all that a run has there.
    assert not any("flare/snapshots/" in name for name in names)
    assert any(name.endswith("log.txt") for name in names)
    found = [path for path in looked for word in words if word in path.read_bytes()]
    assert found == []
