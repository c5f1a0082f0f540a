"""The ports of the parties: charges, policy, publishing."""

import errno
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cape.data import reading, subjects
from cape.errors import ConfigError, DataError, PrivacyBudgetError, StateLostError
from cape.privacy.cost import Event
from cape.privacy.ledger import Budget, Ledger
from cape.protocol.messages import FeatureSpace, SiteCard
from cape.protocol.model import Roster, RosterEntry
from cape.protocol.ports import Stacks
from cape.settings.config import Config
from cape.site.context import AggregatorContext, SiteContext
from cape.site.ledger_file import LifetimeLedger, LifetimeLedgerFile, ListedPerson
from cape.site.policy import SitePolicy
from cape.site.site_data import FileSource
from cape.site.store import Card, MemoryStore

CONFIG = replace(
    Config(epsilon=1.0, delta=1e-5), feature_space="matrix", min_timepoints=5, standardize="demean"
)
EVENT = Event(
    phase="pca", round=1, field="total", shape="psd", size=21, log2_gamma=17, clip_int=10**6,
    delta_int=1414220, variance=10**15, shares=2,
)  # fmt: skip


CARD = Card("0" * 32, 4, "", "")


class Charged(MemoryStore):
    """A store that hands every charge on."""

    def __init__(self, lines: Any, card: Card | None = None) -> None:
        super().__init__("B", card=card)
        self.charge = lines.append if isinstance(lines, list) else lines


def party(source: Any = None, **changed: Any) -> SiteContext:
    fields: dict[str, Any] = {
        "site": "B", "computation": "toy", "config": CONFIG, "policy": SitePolicy(),
        "open_source": lambda: source, "store": MemoryStore("B"),
    }  # fmt: skip
    made = SiteContext(**(fields | changed))
    made.new_run()
    return made


def ledger() -> Ledger:
    return Ledger(budget=Budget.of(epsilon=1.0, delta=1e-5))


def test_a_charge_is_written_down_before_the_ledger_moves() -> None:
    lines = []
    site = party(store=Charged(lambda line: lines.append((dict(line), site.ledger))))
    with pytest.raises(StateLostError, match="E210 state lost at site B: ledger"):
        site.charge(EVENT)
    site.ledger = before = ledger()
    site.charge(EVENT)
    assert site.ledger.events == (EVENT,)
    ((line, at_that_time),) = lines
    assert at_that_time is before
    assert (line["phase"], line["round"]) == ("pca", 1)
    with pytest.raises(PrivacyBudgetError, match="it was charged already"):
        site.charge(EVENT)
    assert len(lines) == 1


def test_a_charge_that_cannot_be_written_down_is_none() -> None:
    def fail(line: Any) -> None:
        raise OSError("disk full")

    site = party(store=Charged(fail))
    site.ledger = ledger()
    with pytest.raises(OSError, match="disk full"):
        site.charge(EVENT)
    assert site.ledger.events == ()


def test_every_charge_of_a_run_is_one_in_the_ledger_of_all_runs(tmp_path) -> None:
    """Before the run's own: what the site's limit over all runs refuses leaves no trace."""
    lines: list[Any] = []
    file = LifetimeLedgerFile(path=tmp_path / "ledger.jsonl", site="B")
    person = ListedPerson(label="sub-1", files=("f",))
    runs = LifetimeLedger(
        file=file, dataset_id="", data=SimpleNamespace(people=[person], contents="c"),
    )  # fmt: skip
    assert runs.begin("0" * 32, "toy", CONFIG, promised=True).word == "in"
    site = party(all_runs=runs, store=Charged(lines, card=CARD))
    site.hold([EVENT, replace(EVENT, round=2)], seeded=False)
    site.ledger = ledger()
    site.charge(EVENT)
    (charge,) = file.find("0" * 32).charges
    assert (charge.phase, charge.round, charge.mu2) == ("pca", 1, str(EVENT.cost))
    file.end("0" * 32, "closed", by="ann", text="as told")
    spent = party(all_runs=runs, store=MemoryStore("B", card=CARD))
    spent.ledger, before = ledger(), file.path.read_bytes()
    with pytest.raises(PrivacyBudgetError, match="E237 Site B has ended this run"):
        spent.charge(replace(EVENT, round=2))
    assert spent.refusal == "E237"  # which the reply says
    assert (len(lines), spent.ledger.events, file.path.read_bytes()) == (1, (), before)


def test_policy_and_budget_come_before_the_line() -> None:
    lines: list[Any] = []
    for policy, change in ((SitePolicy(veto=True), {}), (SitePolicy(), {"variance": 2**20})):
        site = party(policy=policy, store=Charged(lines))
        site.ledger = ledger()
        with pytest.raises(PrivacyBudgetError):
            site.charge(replace(EVENT, **change))
        assert site.ledger.events == ()
    assert lines == []


SPACE_ONLY = SimpleNamespace(space=FeatureSpace.of_matrix(6))
"""A source of which only the feature space is asked."""


def card_of(**said: Any) -> SiteCard:
    return SiteCard(
        protocol=1, version="", computation="", settings="", nonce="0" * 32, n_subjects=4,
        space=FeatureSpace.of_matrix(6), noise="os", **said,
    )  # fmt: skip


def roster(*sites: str) -> Roster:
    entries = tuple(RosterEntry(site=s, nonce="0" * 32, n_subjects=4) for s in sites)
    return Roster(
        sites=entries, config="", space=FeatureSpace.of_matrix(6), n_basis=6, colluders=1,
        survivors=3, seeded=False, plan=(), warnings=(),
    )  # fmt: skip


def test_a_site_admits_settings_card_and_roster_one_after_the_other() -> None:
    card = card_of()
    site = party(source=SPACE_ONLY)
    for facts in (None, card, roster("A", "B", "C")):
        site.admit(facts)
    with pytest.raises(DataError, match="E153"):
        site.admit(replace(card, n_subjects=2))
    for sites in (("A", "C"), ("A", "B", "B")):
        with pytest.raises(PrivacyBudgetError, match=r"E231 .*not list this site"):
            site.admit(roster(*sites))
    strict = party(source=SPACE_ONLY, policy=SitePolicy(max_features=5))
    strict.admit(card)
    with pytest.raises(PrivacyBudgetError, match="E154"):
        strict.admit(roster("A", "B", "C"))
    with pytest.raises(PrivacyBudgetError, match="E154"):
        party(policy=SitePolicy(veto=True)).admit(None)


def test_working_arrays_are_built_once() -> None:
    built = []

    def build() -> Stacks:
        built.append(1)
        return Stacks(arrays=(np.zeros((1, 3, 5), np.float32),), labels=(("c",),))

    site = party()
    assert site.cached("basis", "k", build) is site.cached("basis", "k", build)
    assert built == [1]
    site.cached("basis", "other", build)
    assert built == [1, 1]


def test_files_about_subjects_are_written_if_the_site_wants_them(tmp_path, monkeypatch) -> None:
    from cape.protocol.outcome import SiteOutcome

    result = SiteOutcome(
        site="B", outcome_status="converged", names=(), time_courses=iter(()), ledger=ledger()
    )
    written: list[Any] = []

    def write(output: Any, result: Any, *rest: Any, page: bool) -> None:
        written.append((output, result))

    monkeypatch.setattr("cape.site.context.write_private_results", write)
    party(store=MemoryStore("B", tmp_path)).publish(result)
    assert written == []
    allowed = party(store=MemoryStore("B", tmp_path), policy=SitePolicy(private_results=True))
    allowed.publish("something else")
    assert written == []
    allowed.publish(result)
    assert written == [(tmp_path, result)]


# -- the aggregator --------------------------------------------------------------------------------


def test_the_aggregator_keeps_a_ledger_and_publishes_outcomes_only() -> None:
    aggregator = AggregatorContext(config=CONFIG)
    with pytest.raises(StateLostError, match="state lost at the aggregator: ledger"):
        aggregator.charge(EVENT)
    aggregator.ledger = ledger()
    aggregator.charge(EVENT)
    assert aggregator.ledger.events == (EVENT,)
    aggregator.publish("no outcome")
    assert aggregator.outcome is None
    assert aggregator.digest(EVENT) == party().digest(EVENT)


def test_the_aggregator_keeps_what_only_it_holds_until_it_is_used_up() -> None:
    kept: dict[str, bytes] = {}
    aggregator = AggregatorContext(config=CONFIG, kept=kept)
    aggregator.keep("pending", b"masked sum")
    assert aggregator.secret("pending") == b"masked sum"
    assert kept == {"pending": b"masked sum"}
    for _ in range(2):
        aggregator.keep("pending", b"")
    assert kept == {}
    with pytest.raises(StateLostError, match="state lost at the aggregator: pending is missing"):
        aggregator.secret("pending")


def test_pinned_keys_are_the_site_s_own_files_or_there_are_none() -> None:
    with pytest.raises(ConfigError, match="key_trust=pinned is not possible here; use"):
        party(config=replace(CONFIG, key_trust="pinned")).identity_secret()
    keys = SimpleNamespace(secret=lambda site, fresh: (site, fresh))
    own = party(open_keys=lambda: keys)
    assert own.identity_secret() == own.identity_secret()  # a function of the run's secret
    assert own.identity_secret()[0] == "B"
    assert party().known_keys({"B": b"shown"}) == {"B": b"shown"}


# -- data in files ---------------------------------------------------------------------------------


def test_who_cannot_be_read_for_a_moment_ends_no_run_and_is_named_if_it_lasts(
    tmp_path, monkeypatch
) -> None:
    """A run ended with "files changed" on a busy computer, and nobody could tell whose."""
    rng = np.random.default_rng(0)
    for m in range(3):
        np.save(tmp_path / f"sub-{m}.npy", rng.standard_normal((6, 40)))
    given = {"feature_space": "matrix", "n_features": 6, "min_timepoints": 30, "epsilon": 1.0,
             "delta": 1e-5}  # fmt: skip
    config = Config.from_input(given)
    contents = FileSource(tmp_path, {}, config, "B").contents
    real, left = subjects.read_run, [1]

    def read(run, *given, **named):
        if run.name == "sub-1.npy" and left[0]:
            left[0] -= 1
            raise OSError(errno.EIO, "Input/output error")
        return real(run, *given, **named)

    monkeypatch.setattr(subjects, "read_run", read)
    assert FileSource(tmp_path, {"contents": contents}, config, "B").n_subjects == 3
    assert left == [0]
    left[0] = 2
    with pytest.raises(DataError, match="E161") as caught:
        _ = FileSource(tmp_path, {"contents": contents}, config, "B").n_subjects
    assert "sub-1.npy" in caught.value.detail
    assert "sub-1" not in str(caught.value)


def test_every_file_is_read_once_and_what_is_kept_is_what_a_second_reading_gives(
    tmp_path, monkeypatch
) -> None:
    rng = np.random.default_rng(0)
    for m in range(4):
        np.save(tmp_path / f"sub-{m}.npy", rng.standard_normal((36, 50 + m)))
    given = {"feature_space": "matrix", "min_timepoints": 30, "basis": "dct", "n_basis": 9,
             "image_shape": "6,6", "max_timepoints": 51, "epsilon": 1.0, "delta": 1e-5}  # fmt: skip
    config = Config.from_input(given)
    reads: list[str] = []
    real = reading.read_matrix

    def read(run, *how, headers_only):
        reads.extend([] if headers_only else [run.name])
        return real(run, *how, headers_only=headers_only)

    monkeypatch.setattr(reading, "read_matrix", read)
    source = FileSource(tmp_path, {}, config, "B")
    once = {label: Y.tobytes() for label, Y in source.reduced(9)}
    assert sorted(reads) == [f"sub-{m}.npy" for m in range(4)]
    again = {label: Y.tobytes() for label, Y in source.reduced(9)}  # nothing is kept any more
    assert len(reads) == 8
    assert again == once
    assert list(again) == list(once)


def test_a_site_checks_its_own_line_of_the_roster() -> None:
    card = card_of()
    listed = roster("A", "B", "C")
    changed = tuple(replace(entry, n_subjects=1000) for entry in listed.sites)
    for told in (
        replace(listed, sites=changed),
        replace(listed, sites=tuple(replace(e, nonce="1" * 32) for e in listed.sites)),
        replace(listed, space=FeatureSpace.of_matrix(7)),
        replace(listed, space=replace(listed.space, packed="eJwDAAAAAAE=")),
    ):
        site = party(source=SPACE_ONLY)
        site.admit(card)
        with pytest.raises(PrivacyBudgetError, match="not list this site"):
            site.admit(told)


def test_counts_leave_only_under_a_setting_that_names_their_column() -> None:
    """The policy looks at settings; a card that says more than they name does not leave."""
    card = card_of(counts=(1, 3))
    with pytest.raises(PrivacyBudgetError, match="E168"):
        party(source=SPACE_ONLY).admit(card)

    class Comparison(Config):
        counted = ("dx",)

    site = party(source=SPACE_ONLY, policy=SitePolicy(public_counts=("dx",)))
    site.config = Comparison(epsilon=1.0, delta=1e-5)
    site.admit(card)
    listed = roster("A", "B", "C")
    told = [
        tuple(replace(e, counts=counts if e.site == "B" else (9, 9)) for e in listed.sites)
        for counts in ((1, 3), (2, 2))
    ]
    site.admit(replace(listed, sites=told[0]))
    with pytest.raises(PrivacyBudgetError, match="not list this site"):
        site.admit(replace(listed, sites=told[1]))


def test_what_a_site_lacks_is_listed_as_it_said() -> None:
    card = card_of(lacks=("amygdala",))
    site, listed = party(source=SPACE_ONLY), roster("A", "B", "C")
    site.admit(card)
    for lacks in ((), ("hippocampus",)):
        told = tuple(replace(e, lacks=lacks) for e in listed.sites)
        with pytest.raises(PrivacyBudgetError, match="not list this site"):
            site.admit(replace(listed, sites=told))
    told = tuple(replace(e, lacks=card.lacks) for e in listed.sites)
    site.admit(replace(listed, sites=told))


def test_a_real_site_is_not_drawn_into_a_seeded_run() -> None:
    card = card_of()
    site = party(source=SPACE_ONLY)
    site.admit(card)
    with pytest.raises(PrivacyBudgetError, match="E154"):
        site.admit(replace(roster("A", "B", "C"), seeded=True))
    hidden = party(source=SPACE_ONLY, policy=SitePolicy(simulation_seed=1))
    assert hidden.noise.label == "seeded"
    hidden.admit(card)
    with pytest.raises(PrivacyBudgetError, match="E160"):
        hidden.admit(roster("A", "B", "C"))
