"""Sites that say nothing: the shipped policy, and a ledger of all runs on the engine's disk.

The border is called as COINSTAC calls it, without any variable of the environment; all a site has
is what it mapped and what stays on its disk.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from statistics import NormalDist
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from cape.cli import main
from cape.computations.tables import capemean
from cape.data import pipeline
from cape.engines.coinstac.computation import ENDED
from cape.errors import CapeError, ConfigError, PrivacyBudgetError, StateLostError
from cape.privacy.accounting import gdp_mu
from cape.protocol import secure_sum
from cape.site.access import read_accesses
from cape.site.ledger_file import read_ledger
from cape.site.policy import SitePolicy, load_policy
from support import consortium as helper
from support.simulation import simulate

SETTINGS = helper.settings_of("capemean", computation="capemean", epsilon=2.0, n_sites=3)


class Bare(helper.Engine):
    """An engine whose sites have no policy of the environment."""

    mapped: Mapping[str, Any] = MappingProxyType({})

    def document(self, party: str, message: Any) -> bytes:
        if self.iteration == 1 and party in self.sites:
            message = {**message, **self.mapped}
        return super().document(party, message)

    def ask(self, party: str, message: Any = None) -> bytes:
        role = "local" if party in self.sites else "remote"
        message = self.input if message is None else message
        return self.call(role, self.document(party, message), {})

    def play(self) -> Bare:
        while not self.ended:
            self.exchange()
        return self


def bare(folder: Path, run: str = "run", **changed: Any) -> Bare:
    """Return a run with its own output folders beside those of earlier runs, as in the engine."""
    data = folder / "data"
    if not data.is_dir():
        helper.write_data(data)

    class OfRun(Bare):
        def place(self, party: str, name: str) -> Path:
            place = self.work / party / name / run
            place.mkdir(parents=True, exist_ok=True)
            return place

    return OfRun(folder / "work", data, {**SETTINGS, **changed})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_pages: None) -> Path:
    monkeypatch.delenv("CAPE_SITE_POLICY", raising=False)
    monkeypatch.delenv("CAPE_SITE_HOME", raising=False)
    return tmp_path


def home(folder: Path, site: str = "local0") -> Path:
    return folder / "work" / site / "output" / ".cape-site"


def test_every_site_keeps_a_ledger_of_all_runs_that_nobody_asked_for(folder) -> None:
    """It outlives the run, the container and its working files; nobody else may read it."""
    engine = bare(folder)
    while not engine.ended:
        engine.exchange()
        for site in engine.sites:
            shutil.rmtree(engine.place(site, "cache"))  # a container that was replaced
    for site in engine.sites:
        (run,) = read_ledger(home(folder, site) / "ledger.jsonl").runs
        assert run.epsilon == 2.0
        assert len(run.charges) == 2
        for path in (home(folder, site), *home(folder, site).rglob("*")):
            assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
        assert list(folder.glob(f"data/{site}/*.jsonl*")) == []


def test_runs_add_up_over_output_folders_until_the_shipped_total_refuses(folder) -> None:
    """Twice epsilon 6 is 9.1 of 10; a third run on the same people is refused in `join`."""
    for run in ("one", "two"):
        bare(folder, run, epsilon=6.0).play()
    with pytest.raises(
        PrivacyBudgetError, match=r"E260 .*max_total=10 at delta 1e-5 there, got more"
    ):
        bare(folder, "three", epsilon=6.0).exchange()
    assert len(read_ledger(home(folder) / "ledger.jsonl").runs) == 2
    # The clock frees nothing: there is no date in the rule.
    bare(folder, "four", epsilon=1.0).play()


def test_runs_that_joined_before_the_total_was_spent_are_refused_and_counted(folder) -> None:
    """All fit in `join`, when nothing was spent: each then asks, at no cost, what others cost."""
    names = ("one", "two", "three")
    waiting = [bare(folder, name, epsilon=8.0).until("zero-sum") for name in names]
    fits = bare(folder, "fits", epsilon=1.0).until("zero-sum")
    bare(folder, "spent", epsilon=8.0).play()
    for engine, code in zip((*waiting, fits), ("E260", "E260", "E260", "E239"), strict=True):
        assert refused_with(engine) == code
        run = read_ledger(home(folder) / "ledger.jsonl").find(nonce_of(engine))
        assert run is not None
        assert (run.state, run.charges) == ("asked", ())
    with pytest.raises(PrivacyBudgetError, match="E239 Site local0 begins no run") as refused:
        bare(folder, "next", epsilon=1.0).ask("local0")
    detail = str(refused.value.detail)
    assert "max_refusals = 3" in detail
    assert detail.count("zero-sum round 1 of ") == 3
    assert f"cape ledger forgive --unnamed --why TEXT --file {home(folder)}" in detail


def test_of_two_runs_side_by_side_one_has_results_and_the_other_spent_nothing(folder) -> None:
    """Both were let in, both died halfway, and 9.82 of 10 was gone for ever."""
    one, two = (bare(folder, name, epsilon=8.0) for name in ("one", "two"))
    for _ in range(3):
        one.exchange()
    with pytest.raises(PrivacyBudgetError, match=r"E236 .* nothing was spent") as refused:
        two.play()
    held = read_ledger(home(folder) / "ledger.jsonl").find(nonce_of(one))
    assert f"cape ledger close {held.shown[:8]} --why TEXT" in refused.value.detail
    one.play()
    runs = {run.run: run for run in read_ledger(home(folder) / "ledger.jsonl").runs}
    first = runs.pop(nonce_of(one))
    assert (first.state, len(first.charges)) == ("finished", 2)
    assert not any(run.charges for run in runs.values())


@pytest.mark.parametrize("how", ["closed", "yielded"])
def test_a_run_that_lost_its_place_has_results_of_what_it_charged(folder, how) -> None:
    """The site says in its reply which it is; the run ends with the last good state."""
    engine = bare(folder, epsilon=8.0).until("histogram")
    for site in engine.sites:
        path = home(folder, site) / "ledger.jsonl"
        if how == "closed":
            words = ["ledger", "close", nonce_of(engine, site)[:8], "--why", "stopped"]
            assert main([*words, "--file", str(path)]) == 0
        else:
            os.utime(path.with_name("ledger.jsonl.rounds") / nonce_of(engine, site), (1e9, 1e9))
    other = bare(folder, "other", epsilon=5.0)
    other.play()
    engine.exchange()
    body = json.loads(engine.answers["local0"])["output"]["body"]
    assert (body["refused"], body["refusal"]) == (True, "E237" if how == "closed" else "E238")
    engine.play()
    (results,) = folder.glob("work/remote/transfer/run/results.json")
    assert json.loads(results.read_text())["status"] == how
    runs = {run.run: run for run in read_ledger(home(folder) / "ledger.jsonl").runs}
    first, second = runs[nonce_of(engine)], runs[nonce_of(other)]
    assert (first.state, len(first.charges)) == ("closed" if how == "closed" else "finished", 1)
    assert (second.state, len(second.charges)) == ("finished", 2)


def test_who_lost_a_place_and_finds_no_room_is_counted(folder) -> None:
    """Else an owner could let a run yield, and ask with it what others have spent meanwhile."""
    bare(folder, "before", epsilon=2.0).play()
    engine = bare(folder, epsilon=7.0).until("histogram")
    path = home(folder) / "ledger.jsonl"
    for site in engine.sites:
        rounds = home(folder, site) / "ledger.jsonl.rounds"
        os.utime(rounds / nonce_of(engine, site), (1e9, 1e9))
    bare(folder, "other", epsilon=6.0).until("mean")
    engine.exchange()
    (access,) = (one for one in read_accesses(path).values() if one.kind != "asked")
    assert (access.exchange, access.kind) == ("histogram round 1", "spent")


def test_a_plan_that_is_refused_holds_nothing(folder, monkeypatch) -> None:
    engine = bare(folder, epsilon=8.0).until("zero-sum")

    def refuses(*given: Any, **more: Any) -> None:
        raise PrivacyBudgetError("E231", site="local0", problem="of this test")

    monkeypatch.setattr(capemean, "verify_plan", refuses)
    assert refused_with(engine) == "E231"
    (run,) = read_ledger(home(folder) / "ledger.jsonl").runs
    assert run.state == "asked"


def test_an_error_that_ends_a_run_frees_what_it_held(folder, monkeypatch) -> None:
    engine = bare(folder, epsilon=8.0).until("histogram")

    def ends(*given: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(secure_sum, "clipped_sum", ends)
    with pytest.raises(MemoryError):
        engine.ask("local0")
    (run,) = read_ledger(home(folder) / "ledger.jsonl").runs
    assert (run.state, len(run.charges)) == ("failed", 1)
    assert run.held == run.cost


def test_a_run_that_the_aggregator_ended_frees_what_it_held_at_every_site(folder) -> None:
    engine = bare(folder, epsilon=8.0).until("histogram")
    engine.ask("local0", {ENDED: "CAPE-E156 Site local1 is missing or answered late."})
    (run,) = read_ledger(home(folder) / "ledger.jsonl").runs
    assert (run.state, run.held) == ("failed", run.cost)
    engine.play()  # an aggregator that lied: the run asks for its place again
    (run,) = read_ledger(home(folder) / "ledger.jsonl").runs
    assert (run.state, len(run.charges)) == ("finished", 2)


class Stopped(BaseException):
    """The engine's stop button: a container is killed, and never asked again."""


@pytest.mark.parametrize("when", ["while it reads", "between two exchanges"])
def test_ten_stopped_runs_are_put_right_by_one_command(folder, monkeypatch, capsys, when) -> None:
    """Three of them locked out everybody, for ever, and the cure was to delete hidden files."""
    codes = []
    for number in range(10):
        engine = bare(folder, f"run{number}", epsilon=7.0)
        try:
            if when == "while it reads":
                with monkeypatch.context() as patch:

                    def stop(*given: Any, **more: Any) -> None:
                        raise Stopped

                    patch.setattr(pipeline, "load_site", stop)
                    engine.ask("local0")
            else:
                engine.until("histogram")
        except Stopped:
            codes.append("stopped")
        except PrivacyBudgetError as err:
            codes.append(err.code)
        else:
            codes.append("stopped")
    reads = when == "while it reads"
    refused = "CAPE-E239" if reads else "CAPE-E236"
    assert codes == ["stopped"] * (3 if reads else 1) + [refused] * (7 if reads else 9)
    error = (folder / "work" / "local0" / "output" / "run9" / "site-error.txt").read_text()
    (typed,) = re.findall(r"cape (ledger (?:forgive|close) .*)", error)
    capsys.readouterr()
    assert main(shlex.split(typed)) == 0  # as it is printed, once at each site
    said = capsys.readouterr().out
    assert said.startswith("Forgiven: 3 exchanges" if reads else "Closed: run ")
    for site in engine.sites[1:]:
        path = home(folder, site) / "ledger.jsonl"
        for run in read_ledger(path).runs if path.exists() and not reads else ():
            if run.state == "held":
                words = ["ledger", "close", run.run, "--why", "TEXT", "--file", str(path)]
                assert main(words) == 0
    bare(folder, "after", epsilon=5.0).play()
    capsys.readouterr()
    assert main(["ledger", str(home(folder) / "ledger.jsonl"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    written = shown["forgiven"] if reads else shown["closed"]
    assert [(line["by"], line["text"]) for line in written] == [(getpass.getuser(), "TEXT")]
    assert shown["unanswered"] == []
    assert shown["runs"][-1]["state"] == "finished"


def refused_with(engine: Bare, site: str = "local0") -> str:
    with pytest.raises(PrivacyBudgetError) as caught:
        engine.ask(site)
    return caught.value.code.removeprefix("CAPE-")


def nonce_of(engine: Bare, site: str = "local0") -> str:
    return str(engine.caches[site]["cape"]["nonce"])


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"epsilon": 9.0}, "max_run=8 at delta 1e-5 there, got 9 at delta 1e-5"),
        ({"assumed_colluders": 0}, "min_assumed_colluders=1 there, got 0"),
        ({"noise": "local"}, "allow_local_noise=False there, got noise=local"),
        ({"key_trust": "aggregator"}, "allow_relayed_keys=False there, got key_trust=aggregator"),
        ({"private": False, "epsilon": 0.0, "delta": 0.0}, "allow_not_private=False there"),
    ],
)
def test_a_plan_above_the_shipped_policy_is_refused_and_one_line_raises_it(
    folder, changed, line
) -> None:
    """The file is mapped among the data: COINSTAC's own application has no other place for it."""
    engine = bare(folder, **changed)
    with pytest.raises(PrivacyBudgetError, match=f"E260 Site policy of site local0 .*: {line}"):
        engine.exchange()
    assert not list(folder.rglob("ledger.jsonl"))
    name = line.partition("=")[0]
    raised = "true" if name.startswith("allow_") else "[]" if name == "max_run" else "0"
    total = "max_total = []\n" if "private" in changed or name == "max_run" else ""
    engine = bare(folder, "raised", **changed)
    for site in engine.sites:
        (engine.data / site / "site-policy.toml").write_text(f"{name} = {raised}\n{total}")
    names = ["sub-00.npy", "sub-01.npy", "sub-02.npy", "site-policy.toml"]
    engine.mapped = {"data": names}
    engine.exchange()
    assert engine.cursor[0] == "zero-sum"


def test_a_policy_that_only_lies_beside_the_data_forbids_and_never_allows(folder) -> None:
    """It could be one that an aggregator sent into that folder; passed over it is never."""
    engine = bare(folder)
    path = engine.data / "local0" / "site-policy.toml"
    for text, code in (
        ("veto = true", "E154"),
        ("max_run = [[1.5, 1e-5]]", "E154"),
        ("max_run = ", "E267"),
        ("simulation_seed = 3", "E266"),
        ('ledger_file = "none"', "E266"),
    ):
        path.write_text(text)
        with pytest.raises((PrivacyBudgetError, ConfigError), match=code):
            engine.ask("local0")
    path.write_text("max_run = [[1000, 1e-5]]\nallow_local_noise = true\n")
    engine.ask("local0")
    loud = bare(folder, "loud", epsilon=9.0)
    with pytest.raises(PrivacyBudgetError, match=r"max_run=8 at delta 1e-5 there, got 9"):
        loud.ask("local0")
    path.unlink()
    path.symlink_to("nowhere")
    with pytest.raises(ConfigError, match="E267"):
        engine.ask("local0")


@pytest.mark.parametrize("where", ["sub", "deriv/sub", "behind a link", "of the list"])
def test_a_policy_that_lies_beside_the_files_that_are_read_is_never_ignored(folder, where) -> None:
    """In `join` at any depth; and read again in every later round."""
    engine = bare(folder)
    base = engine.data / "local0"
    inside = base / {"behind a link": "store", "of the list": "lists"}.get(where, where)
    inside.mkdir(parents=True)
    names = sorted(path.name for path in base.glob("sub-*.npy"))
    for name in names if where != "of the list" else ():
        shutil.move(base / name, inside / name)
    shown = inside
    if where == "behind a link":
        shown = base / "shown"
        shown.symlink_to("store")
    engine.mapped = {"data": [(shown / name).relative_to(base).as_posix() for name in names]}
    if where == "of the list":
        rows = ["file,participant_id", *(f"{name},{name[4:6]}" for name in names)]
        (inside / "manifest.csv").write_text("\n".join(rows) + "\n")
        engine.mapped = {"manifest": "lists/manifest.csv"}
    path = inside / "site-policy.toml"
    path.write_text("veto = true")
    with pytest.raises(PrivacyBudgetError, match="E154"):
        engine.ask("local0")
    path.write_text("max_run = ")
    with pytest.raises(ConfigError, match="E267"):
        engine.ask("local0")
    path.write_text("max_run = [[1000, 1e-5]]")
    mapped, engine.mapped = engine.mapped, {}
    others = {site: engine.ask(site) for site in engine.sites[1:]}
    engine.mapped = mapped
    answers = {"local0": engine.ask("local0"), **others}
    engine.finish({site: engine.take(site, text) for site, text in answers.items()})
    path.write_text("veto = true")
    with pytest.raises(PrivacyBudgetError, match="E154"):
        engine.ask("local0")


def test_a_simulated_site_has_the_policies_beside_its_files(folder) -> None:
    data = helper.write_data(folder / "data")
    (data / "local1" / "deriv").mkdir()
    (data / "local1" / "deriv" / "site-policy.toml").write_text("veto = true")
    with pytest.raises(PrivacyBudgetError, match="E154 Site policy of site local1"):
        simulate(data, out=folder / "out", settings=SETTINGS)


def test_a_policy_that_arrives_during_a_run_allows_nothing(folder) -> None:
    engine = bare(folder)
    while engine.cursor[0] != "mean":
        engine.exchange()
    (engine.data / "local0" / "site-policy.toml").write_text("max_run = []\nveto = true\n")
    body = json.loads(engine.ask("local0"))["output"]["body"]
    assert body["refused"]
    assert body["total"] == {"base64": "", "shape": [0]}


def test_a_home_that_went_back_in_time_during_a_run_stops_the_site(folder) -> None:
    """Ledger, key and head of an earlier moment fit each other, but not what this run charged."""
    engine = bare(folder)
    while engine.cursor[0] != "mean":
        engine.exchange()
    shutil.copytree(home(folder), folder / "before")
    engine.exchange()
    assert engine.cursor[0] == "histogram"
    shutil.rmtree(home(folder))
    shutil.copytree(folder / "before", home(folder))
    with pytest.raises(StateLostError, match="E262"):
        engine.ask("local0")


def test_a_site_that_can_keep_nothing_says_where_to_name_a_folder(folder, monkeypatch) -> None:
    (folder / "file").write_text("")
    monkeypatch.setenv("CAPE_SITE_HOME", str(folder / "file" / "home"))
    with pytest.raises(CapeError, match=r"E304 Site local0 .* CAPE_SITE_HOME there"):
        bare(folder).ask("local0")
    monkeypatch.setenv("CAPE_SITE_HOME", str(folder / "home" / "local0"))
    bare(folder).ask("local0")
    assert (folder / "home" / "local0" / "ledger.jsonl").is_file()


def test_the_shipped_policy_is_printed_as_lines_of_a_file(capsys, tmp_path) -> None:
    assert main(["policy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("this software, for image_digests: code:")
    printed = tmp_path / "site-policy.toml"
    printed.write_text("\n".join(lines[:-1]))
    assert load_policy(printed) == SitePolicy()
    printed.write_text('max_run = [[12, 1e-5]]\npublic_counts = ["dx"]\n')
    assert main(["policy", str(printed)]) == 0
    said = capsys.readouterr().out
    assert "# public_counts: the number of people in each level of dx is published" in said
    assert "max_run = [[12.0, 1e-05]]  # not as shipped" in said
    mu = gdp_mu(epsilon=10.0, delta=1e-5)
    right = f"{100 * NormalDist().cdf(mu / 2):.1f}"
    assert (
        f"# max_total: epsilon 10 at delta 1e-5: mu {mu:.5g}, the best guesser is right in "
        f"{right} %" in said
    )


def test_a_simulation_says_by_which_line_real_sites_would_refuse(tmp_path, capsys) -> None:
    """Its own sites allow everything, and their pages say so; never in silence."""
    for site in ("a", "b", "c"):
        (tmp_path / "data" / site).mkdir(parents=True)
        for m in range(2):
            rows = np.random.default_rng(m).normal(size=(4, 30))
            np.save(tmp_path / "data" / site / f"sub-{m}.npy", rows)
    words = ["simulate", str(tmp_path / "data"), "--out", str(tmp_path / "out"), "--delta", "1e-5"]
    for name, value in (("feature_space", "matrix"), ("min_timepoints", "3")):
        words += ["--set", f"{name}={value}"]
    words += ["--set", "computation=capemean", "--quiet"]
    assert main([*words, "--epsilon", "20"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "a real run would be refused by a, b, c" in said
    assert "CAPE-E260 max_run=8 at delta 1e-5, the run has 20" in said
    assert main([*words, "--epsilon", "8", "--replace"]) == 0
    assert "would be refused" not in capsys.readouterr().err
