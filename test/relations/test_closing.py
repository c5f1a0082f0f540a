"""A run that people of a site closed is over there: nobody is read for it, nothing of them written.

It went on: the same ``cape simulate`` read everybody again, the person for whom it was closed too,
and wrote their files; an engine's next exchange summed over everybody before it was refused, and
`report` wrote everybody's time courses.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from cape.cli import main
from cape.errors import PrivacyBudgetError
from cape.site.context import SiteContext
from cape.site.ledger_file import read_ledger
from cape.site.policy import SitePolicy
from cape.site.site_data import FileSource
from support import consortium as helper
from support.simulation import simulate

pytestmark = [
    pytest.mark.usefixtures("no_pages"),
    pytest.mark.filterwarnings("ignore::cape.errors.CapeWarning"),
]
ASKED = {
    "capedjica": helper.settings_of("capedjica", n_rounds=4),
    "capemean": helper.settings_of("capemean", computation="capemean"),
    "capecontrast": helper.settings_of("capecontrast", computation="capecontrast"),
}


def close(ledger: Path) -> None:
    for name in {run.shown for run in read_ledger(ledger).runs}:
        typed = ["ledger", "close", name[:12], "--why", "withdrawal", "--file", str(ledger)]
        assert main(typed) == 0


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sites whose people were read, in order."""
    seen: list[str] = []

    def told(kind: type, name: str, site: Any) -> None:
        original = getattr(kind, name)

        def reading(self: Any, *given: Any, **more: Any) -> Any:
            seen.append(site(self))
            return original(self, *given, **more)

        monkeypatch.setattr(kind, name, reading)

    told(SiteContext, "cached", lambda party: party.id)
    for name in ("reduced", "private_summary"):
        told(FileSource, name, lambda source: "files")
    return seen


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("through", ["memory", "wire"])
def test_a_closed_run_reads_nobody_and_writes_nothing_of_them(
    tmp_path: Path, reads: list[str], name: str, through: str
) -> None:
    people = {"local0": helper.subjects(4, seed=1), "local1": helper.subjects(4, seed=2)}
    data = helper.write_data(tmp_path / "data", people, name)
    ledger, out = tmp_path / "ledger.jsonl", tmp_path / "out"
    policy = SitePolicy.of_simulation(ledger_file=str(ledger), private_results=True)

    def closes(line: Any) -> None:
        if line.exchange == line.exchanges - 2:  # the last release is next
            close(ledger)
            reads.clear()

    common = simulate(
        data, out=out, settings=ASKED[name], policy=policy, through=through, on_progress=closes
    )
    results = json.loads((common / "results.json").read_text())
    assert results["status"] == "closed"
    assert "CAPE-E237" in results["reason"]
    assert reads == []
    assert [path for site in people for path in (out / site / "private").rglob("*")] == []
    for site in people:
        assert json.loads((out / site / "cape-site.json").read_text())["status"] == "closed"
    # One truth: the ledger of all runs, the site's record and the consortium's files
    charged = {len(run.charges) for run in read_ledger(ledger).runs}
    (record,) = {json.loads((out / s / "cape-site.json").read_text())["releases"] for s in people}
    privacy = json.loads((common / "privacy.json").read_text())
    assert charged == {record} == {len(privacy["events"])}


@pytest.mark.parametrize("through", ["memory", "wire"])
def test_a_closed_run_is_refused_before_anybody_is_read(
    tmp_path: Path, reads: list[str], through: str
) -> None:
    data, out = helper.write_data(tmp_path / "data"), tmp_path / "out"
    ledger = tmp_path / "ledger.jsonl"
    policy = SitePolicy.of_simulation(ledger_file=str(ledger), private_results=True)
    given: dict[str, Any] = {"out": out, "settings": ASKED["capedjica"], "policy": policy}

    def stops(line: Any) -> None:
        if line.exchange == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(data, **given, through=through, replace=False, on_progress=stops)
    close(ledger)
    before = files_of(tmp_path)
    reads.clear()
    with pytest.raises(PrivacyBudgetError, match="E237") as refused:
        simulate(data, **given, through=through, replace=False)
    assert "--replace" in refused.value.detail
    assert reads == []
    assert files_of(tmp_path) == before
    simulate(data, **given, through=through)  # --replace begins anew
    assert {run.state for run in read_ledger(ledger).runs} == {"closed", "finished"}


def test_one_site_closes_and_the_others_have_their_results(
    tmp_path: Path, reads: list[str]
) -> None:
    """An engine's sites: who closed says E237 in its reply, as before, and has read nobody."""
    data, policy = helper.write_data(tmp_path / "data"), {}
    engine = helper.Engine(tmp_path / "work", data, ASKED["capedjica"])
    for site in engine.sites:
        ledger = str(tmp_path / f"{site}.jsonl")
        policy[site] = SitePolicy.of_simulation(
            ledger_file=ledger, private_results=True, simulation_seed=3
        )
        engine.allow(site, policy[site])
    engine.until("iterate", 2)
    close(tmp_path / "local1.jsonl")
    reads.clear()
    engine.exchange()
    assert "local1" not in reads
    assert {"local0", "local2"} <= set(reads)
    bodies = {site: message["body"] for site, message in engine.inbox.items()}
    assert [bodies[site]["refused"] for site in engine.sites] == [False, True, False]
    assert bodies["local1"]["refusal"] == "E237"
    with helper.without_pages():
        engine.play()
    for site in engine.sites:
        output = engine.place(site, "output")
        assert json.loads((output / "cape-site.json").read_text())["status"] == "closed"
        assert (output / "private").exists() == (site != "local1")
