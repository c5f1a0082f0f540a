"""Pinned identity keys: an aggregator that swaps keys or splits the roster is found out."""

import dataclasses
import hashlib
import json
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cape.cli import main
from cape.errors import CapeError, ConfigError, SecureAggregationError
from cape.lab.synthetic.consortium import Request, write_consortium
from cape.privacy.accounting import gdp_epsilon
from cape.protocol.outcome import SiteOutcome
from cape.protocol.phases import accept, advance_aggregator, advance_site
from cape.protocol.wire import digest
from cape.report.page import text_of
from cape.secagg import keys
from cape.settings.config import Config
from cape.simulation import memory as driver
from cape.site.context import SiteContext
from cape.site.identity import IdentityFiles, make_key
from support import report_example as example
from support import tiny
from support.simulation import simulate

WAYS = ({}, {"zero_sum": "gaussian"}, {"aggregation": "secagg"})


def folders_of(top: Path, sites: Any) -> dict[str, Path]:
    """A folder per site with its key and the list of all."""
    folders, roster = {}, {}
    for site in sites:
        folders[site] = top / site
        folders[site].mkdir(parents=True, exist_ok=True)
        roster[site] = make_key(folders[site] / "identity_key")
    for folder in folders.values():
        (folder / "roster.json").write_text(json.dumps(roster), encoding="utf-8")
    return folders


def pinned_link(top: Path, n_sites: int = 3, **given: object) -> Any:
    data = tiny.data_of(n_sites)
    folders = folders_of(top, data)
    return tiny.link_of(tiny.settings(key_trust="pinned", **given), data, folders=folders)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_run_with_pinned_keys_gives_what_it_gives_without(tmp_path, way, monkeypatch) -> None:
    tiny.fixed_noise(monkeypatch)
    link = pinned_link(tmp_path, **way)
    pinned = tiny.released(link)[3].mean
    plain = tiny.released(tiny.link_of(tiny.settings(**way), tiny.data_of(3)))[3].mean
    assert pinned.tolist() == plain.tolist()
    if "aggregation" not in way:
        assert len(link._state.model.signatures) == 3


def swapped(inbox: Any) -> None:
    """The aggregator puts a key of its own in the place of that of site1."""
    body = inbox["site1"].body
    fake = keys.public_key(keys.private_key_from_bytes(bytes(range(32)))).hex()
    inbox["site1"] = dataclasses.replace(
        inbox["site1"], body=dataclasses.replace(body, public_key=fake)
    )


def unsigned(inbox: Any) -> None:
    body = dataclasses.replace(inbox["site1"].body, signature="")
    inbox["site1"] = dataclasses.replace(inbox["site1"], body=body)


def other_identity(inbox: Any) -> None:
    """A key that is signed well, by somebody else."""
    body = inbox["site2"].body
    changed = dataclasses.replace(
        inbox["site1"].body, identity_key=body.identity_key, signature=body.signature
    )
    inbox["site1"] = dataclasses.replace(inbox["site1"], body=changed)


def on_the_way(monkeypatch: pytest.MonkeyPatch, phase: str, change: Any) -> None:
    def altered(run: Any, inbox: Any, party: Any) -> Any:
        if run.cursor.phase == phase:
            change(inbox)
        return advance_aggregator(run, inbox, party)

    monkeypatch.setattr(driver, "advance_aggregator", altered)


@pytest.mark.parametrize(
    ("phase", "change", "text"),
    [
        ("zero-sum", swapped, "signature of site1"),
        ("zero-sum", unsigned, "signature of site1"),
        ("zero-sum", other_identity, "signature of site1"),
        ("zero-sum.probe", unsigned, "one signature per site"),
    ],
)
def test_a_lie_about_keys_ends_the_run_before_anything_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, change: Any, text: str
) -> None:
    on_the_way(monkeypatch, phase, change)
    link = pinned_link(tmp_path)
    with pytest.raises(SecureAggregationError, match=text):
        tiny.released(link)
    assert link._state.model.mean is None
    assert not link._state.ledger or not link._state.ledger.events


def test_sites_that_saw_different_rosters_are_told_apart_before_a_release(tmp_path: Path) -> None:
    link = pinned_link(tmp_path)
    while link._state.cursor.phase != "mean":
        link.exchange()
    request, party = link._request, link._parties["site0"]
    signatures = request.body.signatures
    for wrong in ((), signatures[:2], (signatures[1], signatures[0], signatures[2])):
        lie = dataclasses.replace(request, body=dataclasses.replace(request.body, signatures=wrong))
        with pytest.raises(SecureAggregationError):
            advance_site(link._runs["site0"], lie, party)


@pytest.mark.parametrize(
    ("phase", "name"),
    [
        ("zero-sum.probe", "public_keys"),
        ("zero-sum.probe", "identity_keys"),
        ("zero-sum.probe", "signatures"),
        ("mean", "signatures"),
    ],
)
def test_a_list_that_was_cut_is_refused_before_the_round_is_written_down(tmp_path, phase, name):
    """A site refused it while it answered: the whole list that came then was another question."""
    link = pinned_link(tmp_path)
    while link._state.cursor.phase != phase:
        link.exchange()
    request, run, party = link._request, link._runs["site0"], link._parties["site0"]
    cut = dataclasses.replace(request, body=dataclasses.replace(request.body, **{name: ()}))
    with pytest.raises(SecureAggregationError, match="per site"):
        accept(run, cut, party)
    assert accept(run, request, party).model != run.model


def test_with_drop_outs_an_advertisement_by_another_identity_is_refused(tmp_path: Path) -> None:
    link = pinned_link(tmp_path, aggregation="secagg")
    others = folders_of(tmp_path / "others", link._parties)
    # site0 pinned another list
    link._parties["site0"].open_keys = lambda: IdentityFiles(folders=(others["site0"],))
    link.exchange()
    link.exchange()
    with pytest.raises(SecureAggregationError, match="not the pinned one"):
        advance_site(link._runs["site0"], link._request, link._parties["site0"])


# -- files of a site -----------------------------------------------------------------------------


def test_a_key_file_is_private_and_never_replaced(tmp_path: Path) -> None:
    public = make_key(tmp_path / "identity_key")
    assert (tmp_path / "identity_key").stat().st_mode & 0o777 == 0o600
    assert len(bytes.fromhex(public)) == 32
    with pytest.raises(ConfigError, match="exists already"):
        make_key(tmp_path / "identity_key")


def test_keygen_prints_the_public_half(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keygen", "--out", str(tmp_path / "identity_key"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    folder = folders_of(tmp_path / "x", ["a"])["a"]
    (folder / "identity_key").unlink()
    (tmp_path / "identity_key").rename(folder / "identity_key")
    (folder / "roster.json").write_text(json.dumps({"a": shown["public_key"]}))
    identity = IdentityFiles(folders=(tmp_path, folder)).read("a")
    assert identity.roster["a"].hex() == shown["public_key"]
    assert identity.secret.hex() not in repr(identity)


def test_one_file_to_the_owner_and_one_back_pin_the_keys_of_all(tmp_path: Path, capsys) -> None:
    """Each site sends its key.json; the owner sends one roster.json; the run needs nothing else."""
    data = tiny.data_of(3)
    sent = []
    for site in data:
        (tmp_path / site).mkdir()
        words = ["keygen", "--out", str(tmp_path / site / "identity_key"), "--site", site]
        assert main(words) == 0
        sent.append(tmp_path / site / f"{site}.key.json")
        secret = (tmp_path / site / "identity_key").read_text().strip()
        assert secret not in sent[-1].read_text()
    roster = tmp_path / "roster.json"
    words = ["keygen", "--out", str(roster)]
    for path in reversed(sent):
        words += ["--collect", str(path)]
    capsys.readouterr()
    assert main(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert hashlib.sha256(roster.read_bytes()).hexdigest() in said
    assert 'key_trust = "pinned", n_sites = 3' in said
    assert 'site_names = "site0,site1,site2"' in said
    for site in data:
        (tmp_path / site / "roster.json").write_bytes(roster.read_bytes())
    config = tiny.settings(key_trust="pinned", site_names="site0,site1,site2")
    link = tiny.link_of(config, data, folders={site: tmp_path / site for site in data})
    assert len(tiny.released(link)) == tiny.ROUNDS
    assert main(words) == 0  # the same list again is no change
    # Another key of a site, or one site twice, never takes the place of what was pinned.
    for text, code in (
        (json.dumps({"site1": "11" * 32}), "E302"),
        (sent[0].read_text(), "E305"),
        ('{"site1": "zz"}', "E305"),
        ("{}", "E305"),
        ("[", "E305"),
    ):
        sent[1].write_text(text)
        before = roster.read_bytes()
        assert main(words) != 0
        assert code in capsys.readouterr().err
        assert roster.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("identity_key", "zz"),
        ("identity_key", "00"),
        ("identity_key", "11" * 32),
        ("roster.json", "{"),
        ("roster.json", "[]"),
        ("roster.json", '{"a": 1}'),
        ("roster.json", "{}"),
    ],
)
def test_damaged_identity_files_are_refused(tmp_path: Path, name: str, content: str) -> None:
    folder = folders_of(tmp_path, ["a"])["a"]
    (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match="needs the files identity_key"):
        IdentityFiles(folders=(folder,)).read("a")


def test_a_site_without_its_files_does_not_run(tmp_path: Path) -> None:
    link = pinned_link(tmp_path)
    (tmp_path / "site1" / "identity_key").unlink()
    with pytest.raises(CapeError, match="at site site1"):
        tiny.released(link)


def test_messages_without_identity_keys_keep_their_bytes() -> None:
    link = tiny.link_of(tiny.settings(key_trust="aggregator"), tiny.data_of(3))
    while link._state.cursor.phase != "mean":
        link.exchange()
    assert link._state.model.keys.identity_keys == ()
    assert digest(link._state.model.keys) == digest(
        type(link._state.model.keys)(public_keys=link._state.model.keys.public_keys)
    )


@pytest.mark.usefixtures("no_pages")
def test_a_site_says_whose_keys_it_met_and_what_hung_on_them(tmp_path, monkeypatch) -> None:
    write_consortium(
        tmp_path / "data",
        Request(preset="paper", n_sites=3, n_subjects=9, n_timepoints=60, n_networks=2),
    )
    # Of each site, and longer than a simulation.
    homes = lambda places, output: tmp_path / "homes" / output.parent.name  # noqa: E731
    monkeypatch.setenv("CAPE_SITE_HOME", str(tmp_path / "real"))
    monkeypatch.setattr("cape.engines.coinstac.site.home_of", homes)
    chosen = {"epsilon": 50, "delta": 1e-3, "n_rounds": 1, "n_basis": 4, "min_timepoints": 30}
    # At a first meeting the others may all be invented, after it nobody is.
    for run, met, more in (("one", ["local1", "local2"], math.sqrt(2)), ("two", [], 1)):
        out = tmp_path / run
        folder = simulate(tmp_path / "data", out=out, through="wire", settings=chosen)
        privacy = json.loads((folder / "privacy.json").read_text(encoding="utf-8"))
        said = json.loads((out / "local0" / "cape-site.json").read_text(encoding="utf-8"))
        assert privacy["key_trust"] == "first-use"
        assert said["met_first"] == met
        mu = privacy["mu"] * more
        assert said["epsilon_if_invented"] == pytest.approx(gdp_epsilon(mu=mu, delta=1e-3))
    # Nor does a simulation meet anybody in the home of a real site.
    monkeypatch.undo()
    monkeypatch.setenv("CAPE_SITE_HOME", str(tmp_path / "real"))
    simulate(tmp_path / "data", out=tmp_path / "three", through="wire", settings=chosen)
    assert os.environ["CAPE_SITE_HOME"] == str(tmp_path / "real")
    assert not (tmp_path / "real").exists()


@pytest.mark.parametrize(
    ("aggregation", "n_met", "shares"),
    [("all-sites", 3, 4), ("all-sites", 9, 1), ("secagg", 0, 4), ("secagg", 1, 1)],
)
def test_what_invented_sites_cost_follows_from_the_carrier(aggregation, n_met, shares) -> None:
    """Of drop-outs one site too many may sign two lists: then a site has its own share alone."""
    config = Config(epsilon=1.0, delta=1e-5, n_sites=10, aggregation=aggregation)
    ledger = example.outcome().ledger
    result = SiteOutcome(
        site="A", outcome_status="", names=(), time_courses=iter(()), ledger=ledger
    )
    said = SiteContext._with_contacts(SimpleNamespace(config=config), result, ["x"] * n_met)
    h = config.survivors(10) - config.colluders(10)
    mu = ledger.spent.mu() * math.sqrt(h / (shares if n_met else h))
    assert said.epsilon_if_invented == pytest.approx(gdp_epsilon(mu=mu, delta=1e-5))


@pytest.mark.parametrize(
    ("trust", "assumed", "swaps_are_covered"),
    [
        ("pinned", "exchanged beforehand, past it", True),
        ("first-use", "except where sites meet for the first time", False),
        ("aggregator", "follows the protocol and is curious", False),
    ],
)
def test_the_report_says_whose_word_keys_are(trust, assumed, swaps_are_covered) -> None:
    assert assumed in text_of("assumptions.txt.j2", settings={"key_trust": trust})
    left = text_of("not_covered.txt.j2", settings={"key_trust": trust})
    assert ("swaps keys" in left) is not swaps_are_covered
