"""The guarantees of the engine, G1 to G15, each named by the sentence that it proves."""

import base64
import dataclasses
import hashlib
import json
import os
import re
import typing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cape import array_file
from cape.algorithms.pca import ProjectorPca
from cape.engines.coinstac import computation as coinstac
from cape.engines.coinstac.documents import encode_run
from cape.errors import (
    CapeError,
    ConsortiumError,
    MessageError,
    OutOfPhaseError,
    PrivacyBudgetError,
    ProtocolError,
    ReplayError,
    SecureAggregationError,
    StateLostError,
)
from cape.privacy.noise import SecureNoise
from cape.protocol import wire, zero_sum
from cape.protocol.secure_sum import SecureSum, chunks
from cape.secagg import keys
from cape.site import files, store
from cape.site.places import SitePlaces
from cape.site.store import FileStore
from support import consortium as helper

Consortium, Engine = helper.Consortium, helper.Engine
repeated = helper.repeated
canonical, changed, settings_of = (helper.canonical, helper.changed, helper.settings_of)

ROOT = Path(__file__).parents[2]
EXCHANGES = [
    ("join", 1), ("zero-sum", 1), ("zero-sum.probe", 1), ("pca", 1), ("whitening", 1),
    ("iterate", 1), ("iterate", 2), ("report", 1),
]  # fmt: skip
RELEASES = [e for e in EXCHANGES if e[0] in ("pca", "whitening", "iterate")]


def tree(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# -- G1, G2: the table -----------------------------------------------------------------------------


def test_g1_what_a_stage_releases_is_of_the_type_of_its_field_of_the_model() -> None:
    for name, own in (
        ("capedjica", ["pca", "whitening", "iterate"]),
        ("capegica", ["spatial"]),
        ("capedualreg", ["template"]),
    ):
        run = Consortium(name)
        hints = typing.get_type_hints(run.computation.model)
        stages = [entry for entry in run.computation.table if isinstance(entry, SecureSum)]
        assert [stage.name for stage in stages] == own
        for stage in stages:
            (phase,) = stage.phases(run.config)
            assert hints[stage.model_field] == phase.broadcast | None


# -- G3, G4, G5: order -----------------------------------------------------------------------------


def test_g3_a_phase_outside_then_is_refused_and_nothing_changes(recording, tmp_path) -> None:
    engine = recording.at(("whitening", 1), tmp_path / "work")
    before = tree(engine.work / "local0")
    for phase in ("join", "zero-sum", "zero-sum.probe", "report", "unmask"):
        with pytest.raises(OutOfPhaseError, match=f"capedjica has no phase '{phase}' here"):
            engine.ask("local0", {**engine.input, "phase": phase})
        after = tree(engine.work / "local0")
        assert "CAPE-E201" in after.pop("output/site-error.txt").decode()
        assert after == before  # model and ledger are in the cache, which was not answered
    assert engine.ask("local0") == recording.answers[("whitening", 1)]["local0"]


def test_g3_in_memory_model_ledger_noise_and_vault_stay_as_they_were() -> None:
    party = Consortium().until("whitening")
    site = party.parties["local0"]
    run, drawn, kept = party.runs["local0"], len(party.events["local0"]), len(party.secrets)
    ledger = site.ledger
    with pytest.raises(OutOfPhaseError):
        party.answer("local0", replace(party.request, phase="zero-sum"))
    assert party.runs["local0"] is run
    assert site.ledger == ledger
    assert (len(party.events["local0"]), len(party.secrets)) == (drawn, kept)


@pytest.mark.parametrize(("field", "value"), [("v", 2), ("run", "0" * 32), ("config", "0" * 64)])
def test_g4_a_site_checks_the_same_of_every_broadcast(field, value) -> None:
    party = Consortium().until("pca")
    with pytest.raises(MessageError, match=f"{value} is not"):
        party.answer("local0", replace(party.request, **{field: value}))


def test_g4_the_run_is_named_by_the_roster_that_each_site_got() -> None:
    party = Consortium().until("zero-sum")
    roster = party.request.body
    assert party.request.run == hashlib.sha256(canonical(roster)).hexdigest()[:32]
    entries = tuple(replace(entry, nonce="0" * 32) for entry in roster.sites)
    with pytest.raises(MessageError, match=r"run .* is not"):
        party.answer("local0", changed(party.request, sites=entries))


def test_g5_seq_grows_by_exactly_one() -> None:
    party = Consortium().until("iterate")
    for seq in (0, 1, 5, 7, 60):
        with pytest.raises(ProtocolError, match=f"E205 expected seq 6, got {seq};"):
            party.answer("local0", replace(party.request, seq=seq))
    with pytest.raises(ProtocolError, match="E205 expected seq round 1, got round 2"):
        party.answer("local0", replace(party.request, round=2))
    party.request = None
    with pytest.raises(ProtocolError, match="E205 expected seq 6, got none"):
        party.answer("local0")


# -- G6: replay ------------------------------------------------------------------------------------


@pytest.fixture
def live(tmp_path, monkeypatch):
    """An unseeded run through documents, whose draws are written down."""
    drawn: list = []
    monkeypatch.setattr(keys.RunSecret, "stream", helper.watching(drawn))
    data = helper.write_data(tmp_path / "data")
    policy = replace(helper.POLICY, simulation_seed=-1)
    engine = Engine(tmp_path / "work", data, settings_of("capedjica"), policy=policy)
    engine.drawn = drawn
    return engine


def test_g6_an_answered_round_asked_again_returns_the_stored_bytes(live) -> None:
    """At every phase, with real randomness: no draw, no charge, the same answer."""
    live.exchange()  # `join` asked again is another run: see below
    with helper.without_pages():
        while not live.ended:
            first = {site: live.ask(site) for site in live.sites}
            drawn, files = len(live.drawn), tree(live.work / "local0" / "output")
            again = {site: live.ask(site) for site in live.sites}
            for site, text in first.items():
                assert again[site] == text
            assert len(live.drawn) == drawn
            assert tree(live.work / "local0" / "output") == files
            live.finish({site: live.take(site, text) for site, text in first.items()})
    releases = [entry for entry in live.drawn if entry == "noise"]
    assert len(releases) >= 3 * len(RELEASES)


@pytest.mark.parametrize("exchange", EXCHANGES[1:-1])
def test_g6_another_request_for_an_answered_round_is_refused(recording, tmp_path, exchange) -> None:
    engine = recording.at(exchange, tmp_path / "work")
    engine.ask("local0")
    files = tree(engine.work / "local0" / "output" / ".cape")
    other = {**engine.input, "progress": {**engine.input["progress"], "mu": 0.125}}
    with pytest.raises(ReplayError, match=r"E203 round . was already answered"):
        engine.ask("local0", other)
    assert tree(engine.work / "local0" / "output" / ".cape") == files
    assert engine.ask("local0") == recording.answers[exchange]["local0"]


# -- G7, G8: charge, draw, store, send -------------------------------------------------------------


def test_g7_every_charge_stands_before_the_first_byte_of_its_noise() -> None:
    party = Consortium().play()
    for site, log in party.events.items():
        releases = [entry for entry in log if entry[0] == "charge"]
        assert [entry[1:] for entry in releases] == RELEASES, site
        for _, phase, number in releases:
            draws = [i for i, e in enumerate(log) if e == ("draw", site, phase, number, "noise")]
            assert draws
            assert log.index(("charge", phase, number)) < draws[0]


def test_g7_the_charge_is_on_disk_before_the_first_byte_of_its_noise(
    recording, tmp_path, monkeypatch
) -> None:
    engine = recording.at(("iterate", 1), tmp_path / "work")
    ledger = engine.journal("local0") / "ledger.jsonl"
    seen: list[str] = []

    class Looking(SecureNoise):
        def token_bytes(self, n: int) -> bytes:
            seen.append(ledger.read_text())
            return super().token_bytes(n)

    monkeypatch.setattr(keys.RunSecret, "stream", lambda secret, *context: Looking())
    engine.ask("local0")
    assert seen
    assert json.loads(seen[0].splitlines()[-1])["phase"] == "iterate"
    assert len(seen[0].splitlines()) == 3


def test_g7_a_release_past_the_budget_draws_nothing() -> None:
    party = Consortium().until("iterate")
    run = party.runs["local0"]
    budget = replace(run.ledger.budget, mu=float(run.ledger.spent.mu()))
    party.runs["local0"] = replace(run, ledger=replace(run.ledger, budget=budget))
    before = len(party.events["local0"])
    after, reply = party.answer("local0")
    assert reply.body.refused
    assert reply.body.total.size == 0
    assert party.events["local0"][before:] == []
    assert after.ledger == party.runs["local0"].ledger


def test_g7_a_release_that_is_not_in_the_plan_or_asks_for_more_draws_nothing() -> None:
    for damage in (
        lambda plan: plan[:2] + plan[3:],
        lambda plan: (*plan[:2], replace(plan[2], shape="psd"), *plan[3:]),
        lambda plan: (
            *plan[:2],
            replace(plan[2], size=plan[2].size - 0, clip_int=2**40),
            *plan[3:],
        ),
        lambda plan: (*plan[:2], replace(plan[2], delta_int=plan[2].delta_int - 1), *plan[3:]),
    ):
        party = Consortium().until("iterate")
        run = party.runs["local0"]
        roster = replace(run.model.roster, plan=damage(run.model.roster.plan))
        party.runs["local0"] = replace(run, model=replace(run.model, roster=roster))
        before = len(party.events["local0"])
        with pytest.raises(PrivacyBudgetError):
            party.answer("local0")
        assert party.events["local0"][before:] == []


def test_g7_the_policy_of_the_site_is_asked_before_every_release(live) -> None:
    live.until("iterate", 2)
    live.allow("local1", replace(helper.POLICY, veto=True, simulation_seed=-1))
    drawn = len(live.drawn)
    answer = json.loads(live.ask("local1"))
    assert answer["output"]["body"]["refused"] is True
    assert answer["output"]["body"]["total"] == {"base64": "", "shape": [0]}
    assert len(live.drawn) == drawn


@pytest.fixture
def disk(monkeypatch):
    """What the journal does to the disk, in order; dies before operation `die_before`."""
    done = SimpleNamespace(log=[], die_before=None)

    class Died(BaseException):
        pass

    def watched(name, real):
        def call(*args, **kwargs):
            if done.die_before == len(done.log):
                raise Died
            target = Path(args[1]).name if name == "replace" else ""
            done.log.append(f"{name} {target}".strip())
            return real(*args, **kwargs)

        return call

    own = SimpleNamespace(**{n: getattr(os, n) for n in dir(os) if not n.startswith("__")})
    own.replace, own.fsync = watched("replace", os.replace), watched("fsync", os.fsync)
    own.write = watched("write", os.write)
    for module in (files, array_file, store):
        monkeypatch.setattr(module, "os", own)
    done.Died = Died
    return done


def test_g8_journal_and_receipt_are_on_disk_before_any_byte_leaves(recording, tmp_path, disk):
    engine = recording.at(("iterate", 1), tmp_path / "work")
    engine.ask("local0")
    stored = ["fsync", "replace receipt.jsonl", "fsync"]
    # Receipt and answer, in which the charge is; nothing goes on from the lines of charges and of
    # what was sent.  Working arrays, which can be made again, are not synced.
    arrays = disk.log[0]
    assert arrays.endswith("-subspace.arrays")
    assert disk.log == [arrays, "write", *stored, "write"]


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_g8_a_site_that_dies_at_any_write_goes_on_with_the_same_bytes(
    recording, tmp_path, disk, exchange
) -> None:
    for step in range(20):
        work = tmp_path / str(step)
        engine = recording.at(exchange, work)
        disk.log.clear()
        disk.die_before = step
        try:
            engine.ask("local0")
        except disk.Died:
            disk.die_before = None
            answer, again = engine.ask("local0"), engine.ask("local0")  # stored now
            stored = recording.answers[exchange]["local0"]
            assert repeated(answer) == repeated(again) == repeated(stored)
            assert answer == again == stored or exchange == ("join", 1)
        else:
            break
    assert step >= (0 if exchange[0] == "report" else 5)
    ledger = list(work.glob("local0/output/.cape/*/ledger.jsonl"))
    lines = ledger[0].read_text().splitlines() if ledger else []
    assert len(lines) == len(set(lines))


def test_g8_where_sites_may_drop_out_a_site_that_dies_answers_the_same_or_not_at_all(
    tmp_path, disk
) -> None:
    """Key sets are used once: between using one and storing the answer there is no way back."""
    recording = helper.record(tmp_path, aggregation="secagg")
    outcomes = set()
    for exchange in [e for e in recording.exchanges if e[0].startswith("iterate") and e[1] == 1]:
        for step in range(9):
            engine = recording.at(exchange, tmp_path / f"{exchange[0]}-{step}")
            disk.log.clear()
            disk.die_before = step
            try:
                engine.ask("local0")
            except disk.Died:
                disk.die_before = None
                try:
                    answer = engine.ask("local0")
                except CapeError as err:
                    outcomes.add(err.code)
                else:
                    assert answer == recording.answers[exchange]["local0"]
                    outcomes.add("same")
            else:
                break
    assert "same" in outcomes


# -- G9: order of arrival --------------------------------------------------------------------------


def test_g9_the_order_of_arrival_gives_identical_bytes(recording) -> None:
    party = Consortium()
    while not party.ended:
        inbox = party.answers()
        results, whole = [], None
        for order in (sorted(inbox), sorted(inbox, reverse=True), ["local1", "local2", "local0"]):
            whole = party.combine({site: inbox[site] for site in order})
            results.append((canonical(whole[0].model), canonical(whole[1].body)))
        assert len(set(results)) == 1
        party.go_on(whole)


@pytest.mark.parametrize("exchange", EXCHANGES[:-1])
def test_g9_the_order_of_keys_in_documents_gives_identical_bytes(recording, tmp_path, exchange):
    engine = recording.at(exchange, tmp_path / "work")
    answers = recording.answers[exchange]
    inbox = {site: json.loads(answers[site])["output"] for site in engine.sites}

    def backwards(value):
        if isinstance(value, dict):
            return {key: backwards(value[key]) for key in sorted(value, reverse=True)}
        return [backwards(item) for item in value] if isinstance(value, list) else value

    for role, party, came in (("local", "local0", engine.input), ("remote", "remote", inbox)):
        own = SitePlaces(policy=engine.work / party / "site-policy.toml")
        text = json.dumps(backwards(json.loads(engine.document(party, came))))
        answer = wire.dumps(coinstac.run(role, json.loads(text), own))
        assert repeated(answer) == repeated(answers[party])


# -- G10: what does not fit ------------------------------------------------------------------------


def test_g10_a_masked_vector_of_another_length_is_never_summed() -> None:
    party = Consortium().until("pca")
    inbox = party.answers()
    size = inbox["local0"].body.total.size
    for sites, length in (({"local1"}, size - 1), (set(inbox), size + 1), (set(inbox), 0)):
        wrong = {
            site: changed(reply, total=np.zeros(length, dtype=np.uint64))
            if site in sites
            else reply
            for site, reply in inbox.items()
        }
        with pytest.raises(MessageError, match=f"numbers, needed {size}"):
            party.combine(wrong)


# -- G11: one public state -------------------------------------------------------------------------


def test_g11_after_every_round_all_models_are_equal_bit_for_bit() -> None:
    party = Consortium().play()
    hint = party.computation.model
    for models in party.models:
        assert len({canonical(model, hint) for model in models}) == 1
    assert len(party.models) == len(EXCHANGES)


# -- G12: marked fields only -----------------------------------------------------------------------


def test_g12_masked_is_built_in_the_secure_sum_and_the_probe_only() -> None:
    builders = {
        path.name: len(re.findall(r"\bMasked\(", path.read_text()))
        for path in (ROOT / "cape").rglob("*.py")
    }
    assert {name: n for name, n in builders.items() if n} == {
        "secure_sum.py": 2,  # the answer, the refusal
        "carriers.py": 1,  # seeds: pure noise
        "zero_sum.py": 1,
    }


# -- G13: no secret --------------------------------------------------------------------------------


def forms(secret: bytes) -> list[bytes]:
    """Return how a secret could look in a text: raw, hex, base64, numbers."""
    words = np.frombuffer(secret[: len(secret) // 8 * 8], dtype="<u8")
    return [
        secret, secret[::-1], secret.hex().encode(), secret.hex().upper().encode(),
        base64.b64encode(secret).rstrip(b"="), base64.urlsafe_b64encode(secret).rstrip(b"="),
        base64.b64encode(b"\0" + secret)[4:-4], base64.b64encode(b"\0\0" + secret)[4:-4],
        str(int.from_bytes(secret, "little")).encode(), str(int.from_bytes(secret, "big")).encode(),
        json.dumps(list(secret)).encode(), str(words[0]).encode(),
    ]  # fmt: skip


def test_g13_no_secret_is_in_any_byte_that_is_sent_or_stored(tmp_path, monkeypatch) -> None:
    secrets: list[bytes] = []
    vault_keys: dict[str, bytes] = {}
    keep, pair = FileStore.keep, keys.shared_keys

    def keeping(self, name, secret):
        secrets.append(secret)
        vault_keys[self._site] = self.vault_key
        keep(self, name, secret)

    def sharing(*args, **kwargs):
        found = pair(*args, **kwargs)
        secrets.extend(found.keys.values())
        return found

    monkeypatch.setattr(FileStore, "keep", keeping)
    monkeypatch.setattr(keys, "shared_keys", sharing)
    data = helper.write_data(tmp_path / "data")
    engine = Engine(tmp_path / "work", data, settings_of("capedjica"))
    seen: dict[str, bytes] = {}
    with helper.without_pages():
        while not engine.ended:
            engine.exchange()
            name = f"{engine.cursor} {engine.iteration}"
            seen |= {f"{name} {path}": text for path, text in tree(engine.work).items()}
            if engine.iteration == 5:
                site = engine.copy(tmp_path / "broken")
                with pytest.raises(CapeError) as caught:
                    site.ask("local0", {**site.input, "body": {}})
                seen["error"] = repr(caught.value).encode() + caught.value.detail.encode()
    # Of the run, own keys, one for each pair, and what was agreed, before and after all signed it
    assert len(set(secrets)) == 3 + 3 + 3 + 2 * 3
    texts = {f"answer {i}": text for i, text in enumerate(engine.texts)}
    for secret in set(secrets):
        for form in forms(secret):
            assert not [where for where, text in (seen | texts).items() if form in text]
    for site, key in vault_keys.items():
        # The key of the vault stands in the site's own cache alone: in no file, and in nothing
        # that is sent.
        assert not [w for w, text in seen.items() if any(f in text for f in forms(key))], site
        for text in engine.texts:
            output = wire.dumps(json.loads(text)["output"])
            assert not any(form in output for form in forms(key))


def test_g13_the_vault_key_and_the_vault_never_lie_in_one_folder(recording) -> None:
    """The answer to `join` held the key, on disk until the second one was stored."""
    for exchange in EXCHANGES[1:]:
        engine = recording.engine.before[exchange]
        for site in engine.sites:
            key = engine.caches[site]["cape"]["vault_key"]
            assert len(base64.b64decode(key)) == 32
            files = tree(engine.work / site)
            assert any("vault-" in name for name in files)
            assert not [name for name, text in files.items() if key.encode() in text]


def test_g13_a_used_up_secret_is_gone(recording, tmp_path) -> None:
    engine = recording.engine
    for site in engine.sites:
        assert not (engine.work / site / "output" / ".cape").exists()
    broken = recording.at(("iterate", 1), tmp_path / "work")
    (vault,) = broken.journal("local0").glob("vault-agreed.*")
    vault.write_bytes(b"damaged")
    with pytest.raises(StateLostError, match="key of this run is missing or damaged"):
        broken.ask("local0")
    assert not list(broken.journal("local0").glob("vault-*"))  # the run is over: burnt


@pytest.mark.parametrize("cut", [1, 32])
def test_g13_keys_of_another_roster_make_no_mask(recording, tmp_path, monkeypatch, cut) -> None:
    """One that is short of bytes would be known to everybody."""
    broken = recording.at(("iterate", 1), tmp_path / "work")
    real = zero_sum._masked

    def shortened(site, model, agreed, *rest):
        return real(site, model, dataclasses.replace(agreed, pairs=agreed.pairs[:-cut]), *rest)

    monkeypatch.setattr(zero_sum, "_masked", shortened)
    with pytest.raises(StateLostError, match="keys of all other sites"):
        broken.ask("local0")


def test_g13_errors_and_reprs_hold_no_key_bytes() -> None:
    secret = bytes(range(32))
    ring = keys.KeyRing(site="local0", secret_key=secret)
    pairs = keys.PairKeys(site="local0", keys={"local1": secret})
    for form in forms(secret):
        assert form.decode("latin-1") not in repr(ring) + repr(pairs)
    with pytest.raises(SecureAggregationError) as caught:
        keys.KeyRing(site="local0", secret_key=secret[:-1])
    assert secret[:-1].hex() not in str(caught.value)


def test_g13_the_cache_of_a_site_holds_public_values_and_the_vault_key_only(recording) -> None:
    engine = recording.engine.before[("iterate", 2)]
    caches = {site: dict(engine.caches[site]["cape"]) for site in engine.sites}
    nonces = {caches[site].pop("nonce") for site in caches}
    keys_ = {caches[site].pop("vault_key") for site in caches}
    assert len(nonces) == len(keys_) == 3
    own = json.loads(json.dumps(engine.caches["remote"]["cape"]))
    assert {own.pop("nonce"), own.pop("vault_key")} == {""}
    # what is left is one step behind the aggregator's and equal at all sites
    assert caches["local0"] == caches["local1"] == caches["local2"]
    assert set(own) == {"head", "model"}


def test_g13_a_cache_past_its_hard_cap_is_refused(monkeypatch) -> None:
    party = Consortium().until("pca")
    size = len(wire.dumps(encode_run(party.state)))
    monkeypatch.setattr(wire, "MAX_STATE", size - 1)
    with pytest.raises(CapeError, match="E145 cache=more exceeds the limit 4 MiB"):
        encode_run(party.state)


# -- G14: the list of sites ------------------------------------------------------------------------


@pytest.mark.parametrize("exchange", EXCHANGES[1:])
def test_g14_a_missing_or_new_site_is_an_error_never_a_smaller_sum(exchange) -> None:
    party = Consortium().until(*exchange)
    inbox = party.answers()
    state, ledger = party.state, party.state.ledger
    missing = {site: reply for site, reply in inbox.items() if site != "local1"}
    with pytest.raises(ConsortiumError, match="local1") as caught:
        party.combine(missing)
    assert caught.value.code == "CAPE-E156"
    with pytest.raises(ConsortiumError, match="local9"):
        party.combine({**inbox, "local9": inbox["local1"]})
    with pytest.raises(ConsortiumError, match="local1"):
        party.combine({**missing, "local9": inbox["local1"]})
    with pytest.raises(ConsortiumError):
        party.combine({})
    assert party.outcome is None
    assert (party.state, party.state.ledger) == (state, ledger)


def test_g14_masks_of_a_smaller_sum_do_not_cancel() -> None:
    """Even an aggregator that leaves a site out on purpose learns nothing."""
    party = Consortium().until("pca")
    inbox = party.answers()
    roster = party.state.model.roster
    fewer = replace(roster, sites=tuple(e for e in roster.sites if e.site != "local1"))
    cheat = replace(party.state, model=replace(party.state.model, roster=fewer))
    with pytest.raises(SecureAggregationError, match="masks do not cancel"):
        party.combine({s: r for s, r in inbox.items() if s != "local1"}, cheat)


def test_g14_a_roster_without_the_site_itself_is_refused() -> None:
    party = Consortium().until("zero-sum")
    roster = replace(party.request.body, sites=party.request.body.sites[:2])
    run = hashlib.sha256(canonical(roster)).hexdigest()[:32]
    with pytest.raises(PrivacyBudgetError, match=r"E231 .*local2: .*not list this site"):
        party.answer("local2", replace(party.request, body=roster, run=run))


# -- a dishonest aggregator ------------------------------------------------------------------------


def named(request, **body):
    """Return a roster that was changed before anybody saw it: the run bears its name."""
    roster = replace(request.body, **body)
    return replace(request, body=roster, run=hashlib.sha256(canonical(roster)).hexdigest()[:32])


@pytest.mark.parametrize(
    "lie",
    [
        lambda r: {"plan": tuple(replace(e, variance=e.variance // 4) for e in r.plan)},
        lambda r: {"plan": tuple(replace(e, variance=0) for e in r.plan)},
        lambda r: {"plan": r.plan[:-1]},
        lambda r: {"colluders": 0},
        lambda r: {"config": "0" * 64},
        lambda r: {"n_basis": 4},
    ],
    ids=["less noise", "no noise", "fewer rounds", "fewer colluders", "other settings", "basis"],
)
def test_a_plan_that_is_not_that_of_the_settings_is_refused_before_a_key_is_made(lie) -> None:
    party = Consortium().until("zero-sum")
    with pytest.raises(PrivacyBudgetError):
        party.answer("local0", named(party.request, **lie(party.request.body)))
    assert party.secrets == []


def test_sites_that_were_told_different_things_give_a_sum_of_noise() -> None:
    """Masks are bound to all that was broadcast, whether it matters or not."""
    for exchange in (("zero-sum.probe", 1), ("iterate", 1), ("iterate", 2)):
        # Where keys are signed, a false list of signatures is refused before this.
        party = Consortium(key_trust="aggregator").until(*exchange)
        inbox = {site: party.answer(site)[1] for site in party.parties}
        party.combine(inbox)
        others = (f"{1:064x}", "", f"{2:064x}")  # of the other two: its own a site would miss
        told = {"identity_keys": others, "signatures": others}
        if exchange[0] == "iterate":
            told = {"record": replace(party.request.body.record, noise_norm=0.125)}
        inbox["local1"] = party.answer("local1", changed(party.request, **told))[1]
        with pytest.raises(SecureAggregationError, match="masks do not cancel"):
            party.combine(inbox)


def test_what_only_people_read_makes_no_other_question() -> None:
    """Else a restored folder could be asked the same again, and would draw other noise."""
    party = Consortium(seed=None).until("iterate", 2)
    other = replace(party.request, progress=replace(party.request.progress, mu=0.125))
    first, again = party.answer("local1")[1], party.answer("local1", other)[1]
    assert canonical(first.body) == canonical(again.body)


def test_a_changed_key_is_found_by_the_site_it_belongs_to() -> None:
    party = Consortium(key_trust="aggregator").until("zero-sum.probe")
    book = party.request.body.public_keys
    mine = keys.public_key(keys.private_key_from_bytes(bytes(range(32)))).hex()
    swapped = changed(party.request, public_keys=(book[0], mine, book[2]))
    with pytest.raises(SecureAggregationError, match="the key of local1 was changed"):
        party.answer("local1", swapped)
    inbox = {site: party.answer(site, swapped)[1] for site in ("local0", "local2")}
    assert not np.array_equal(inbox["local0"].body.total, party.answer("local0")[1].body.total)
    for wrong in (book[:2], (*book, mine), (book[0], book[0], book[2]), (*book[:2], "zz")):
        with pytest.raises(SecureAggregationError):
            party.answer("local0", changed(party.request, public_keys=tuple(wrong)))


def test_the_order_and_the_sizes_of_the_roster_are_part_of_every_mask() -> None:
    # Pair keys, of which all masks are made, are derived here, from the roster.
    party = Consortium(key_trust="aggregator").until("zero-sum.probe")
    total = party.answer("local0")[1].body.total
    run = party.runs["local0"]
    roster = run.model.roster
    own, other, *rest = roster.sites
    entries = (own, replace(other, n_subjects=other.n_subjects + 1), *rest)
    party.runs["local0"] = replace(
        run, model=replace(run.model, roster=replace(roster, sites=entries))
    )
    assert not np.array_equal(party.answer("local0")[1].body.total, total)


# -- what the estimator is given -------------------------------------------------------------------


@pytest.mark.parametrize("private", [True, False])
def test_an_estimator_gets_the_mean_over_all_subjects_and_the_true_noise(private, monkeypatch):
    seen = []
    step = ProjectorPca.step

    def watched(self, state, mean, noise_std):
        seen.append((mean, noise_std))
        return step(self, state, mean, noise_std)

    monkeypatch.setattr(ProjectorPca, "step", watched)
    party = Consortium(private=private).until("pca")
    event = party.state.model.roster.plan[0]
    (entry,) = (e for e in party.computation.table if getattr(e, "name", "") == "pca")
    query = entry.estimator(party.config, party.state.model).query(
        entry.current(party.config, party.state.model)
    )
    answers = []
    for site in party.parties.values():
        stacks = entry.input(site, party.state.model)
        answers += [query.answer(array) for array in chunks(stacks)]
    honest = np.concatenate(answers)
    assert len(honest) == 10
    party.exchange()
    ((mean, noise_std),) = seen
    expected = (3 * event.variance) ** 0.5 / (event.gamma * 10)
    assert noise_std == pytest.approx(expected, rel=1e-12)
    error = mean - honest.mean(axis=0)
    if private:  # fixed seed; 78 entries
        assert 0.75 < np.sqrt(np.mean(error**2)) / noise_std < 1.25
    else:
        assert noise_std == 0.0
        assert np.abs(error).max() <= 1 / event.gamma


# -- G15: one answer whatever carries it -----------------------------------------------------------


def test_no_field_of_a_run_is_forgotten_when_a_state_is_stored() -> None:
    """A new field of `Run` must be carried by the codec, too, or be empty between two exchanges."""
    party = Consortium().until("pca")
    assert {f.name for f in dataclasses.fields(party.state)} == {
        "bound", "run", "cursor", "ledger", "model", "transcript", "own_part",
    }  # fmt: skip
    assert party.state.own_part is None


def test_a_forged_fingerprint_of_the_keys_is_refused_by_every_site() -> None:
    # What people compare by phone once came from the aggregator unchecked, the same for all.
    party = Consortium().until("pca")
    forged = replace(party.request, body=replace(party.request.body, fingerprint="deadbeef" * 2))
    for site in ("local0", "local1", "local2"):
        with pytest.raises(SecureAggregationError, match="fingerprint"):
            party.answer(site, forged)
