"""The ports of the parties: working arrays that may be lost, charges, policy, publishing."""

from __future__ import annotations

import binascii
import errno
import mmap
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cape.data import reading
from cape.errors import ConfigError, DataError, PrivacyBudgetError, StateLostError
from cape.privacy.cost import Event
from cape.privacy.ledger import Budget, Ledger
from cape.protocol.messages import FeatureSpace, Roster, RosterEntry, SiteCard
from cape.protocol.ports import Stacks
from cape.settings.config import Config
from cape.site.context import AggregatorContext, SiteContext
from cape.site.ledger_file import AllRuns, LedgerFile, Person
from cape.site.policy import SitePolicy
from cape.site.site_data import FileSource
from cape.site.store import Card, FileStore, JoinRecord, MemoryStore

CONFIG = replace(
    Config(epsilon=1.0, delta=1e-5), feature_space="matrix", min_timepoints=5, standardize="demean"
)
EVENT = Event(
    phase="pca", round=1, field="total", shape="psd", size=21, log2_gamma=17, clip_int=10**6,
    delta_int=1414220, variance=10**15, shares=2,
)  # fmt: skip
STACKS = Stacks(
    arrays=(np.arange(24, dtype=np.float32).reshape(2, 3, 4), np.zeros((1, 3, 5), np.float32)),
    labels=(("a", "\u00e9"), ("c",)),
)


def same(a: Stacks | None, b: Stacks) -> bool:
    return (
        a is not None
        and a.labels == b.labels
        and len(a.arrays) == len(b.arrays)
        and all(
            x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
            for x, y in zip(a.arrays, b.arrays, strict=True)
        )
    )


def side_store(folder: Path, site: str = "local0", contents: str = "") -> FileStore:
    """A store whose working arrays lie in that folder."""
    store = FileStore(folder / "never", folder, site)
    store.record = JoinRecord(
        card=("", 0, "", ""), policy_at_join=SitePolicy(), identity="", contents=contents
    )
    return store


# -- working arrays --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["storery", "file"])
def test_working_arrays_come_back_under_their_name_and_key_only(kind, tmp_path) -> None:
    store = MemoryStore("local0") if kind == "storery" else side_store(tmp_path / "deep" / "folder")
    assert store.arrays("basis", "k") is None
    store.put_arrays("basis", "k", STACKS)
    assert same(store.arrays("basis", "k"), STACKS)
    assert store.arrays("basis", "other") is None
    assert store.arrays("reduced", "k") is None
    store.put_arrays("basis", "other", Stacks(arrays=(), labels=()))
    assert store.arrays("basis", "k") is None
    assert store.arrays("basis", "other") == Stacks(arrays=(), labels=())


def test_side_files_are_private_and_belong_to_one_party(tmp_path) -> None:
    one, two = side_store(tmp_path), side_store(tmp_path, "../local 1/x")
    one.put_arrays("basis", "k", STACKS)
    two.put_arrays("basis", "k", Stacks(arrays=(), labels=()))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 2
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.parent for path in files} == {tmp_path}
    one.forget_arrays()
    assert one.arrays("basis", "k") is None
    assert two.arrays("basis", "k") is not None
    one.forget_arrays()


def test_side_files_made_of_other_data_are_lost(tmp_path) -> None:
    """Same settings, other files: what lies there from another run is never summed."""
    one, two = (side_store(tmp_path, contents=c) for c in ("a", "b"))
    one.put_arrays("basis", "k", STACKS)
    assert two.arrays("basis", "k") is None
    assert same(one.arrays("basis", "k"), STACKS)


@pytest.fixture(scope="module")
def side_file(tmp_path_factory) -> tuple[FileStore, Path, bytes]:
    folder = tmp_path_factory.mktemp("side")
    store = side_store(folder)
    store.put_arrays("basis", "k", STACKS)
    (path,) = folder.iterdir()
    return store, path, path.read_bytes()


@given(data=st.data())
@settings(max_examples=300)
def test_a_damaged_side_file_is_lost_or_whole(data, side_file) -> None:
    """It is never other data, and never an error."""
    store, path, whole = side_file
    damaged = bytearray(whole)
    kind = data.draw(st.sampled_from(["change", "cut", "insert", "replace"]))
    where = data.draw(st.integers(0, len(whole) - 1))
    if kind == "change":
        damaged[where] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del damaged[where:]
    elif kind == "insert":
        damaged[where:where] = data.draw(st.binary(min_size=1, max_size=20))
    else:
        damaged = bytearray(data.draw(st.binary(max_size=64)))
        damaged[:0] = data.draw(
            st.sampled_from([b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"PK\x05\x06"])
        )
    path.write_bytes(bytes(damaged))
    found = store.arrays("basis", "k")
    assert found is None or same(found, STACKS)


def settled_side_file(folder: Path, stacks: Stacks = STACKS) -> tuple[FileStore, Path]:
    """A store whose file was read, summed up and found whole: `.seen` says so."""
    store = side_store(folder)
    store.put_arrays("basis", "k", stacks)
    (path,) = folder.iterdir()
    with pytest.MonkeyPatch.context() as patch:
        later = time.time() + 60.0
        patch.setattr(time, "time", lambda: later)
        assert same(store.arrays("basis", "k"), stacks)
    assert path.with_suffix(".seen").stat().st_mode & 0o777 == 0o600
    time.sleep(0.05)  # some kernels' clock of files ticks every 10 ms
    return store, path


@pytest.mark.parametrize("how", ["in place", "another file", "its times set back", "a copy"])
def test_a_side_file_that_was_found_whole_is_summed_up_again_once_it_changed(tmp_path, how) -> None:
    store, path = settled_side_file(tmp_path)
    before, damaged = path.stat(), bytearray(path.read_bytes())
    damaged[-1] ^= 1
    if how == "in place":
        with path.open("r+b") as file:
            file.write(damaged)
    else:
        other = tmp_path / "other"
        other.write_bytes(damaged)
        if how != "another file":
            os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
        if how == "a copy":
            shutil.copy2(other, path)
        else:
            other.replace(path)
    assert path.stat().st_size == before.st_size
    assert store.arrays("basis", "k") is None


def test_a_side_file_is_summed_up_once_and_never_copied(tmp_path, monkeypatch) -> None:
    """The plain way, a copy of all that is there in every round, gives the same."""
    store, _ = settled_side_file(tmp_path)
    monkeypatch.setattr(binascii, "crc32", None)
    found = store.arrays("basis", "k")
    assert same(found, STACKS)
    for array, plain in zip(found.arrays, STACKS.arrays, strict=True):
        assert array.flags.aligned
        assert array.ctypes.data % 64 == 0
        assert not array.flags.writeable
        assert array.flags.f_contiguous == plain.flags.f_contiguous
    store.forget_arrays()
    assert list(tmp_path.iterdir()) == []
    assert same(found, STACKS)  # whoever holds arrays keeps them


def test_a_side_file_is_read_where_it_cannot_be_mapped(tmp_path, monkeypatch) -> None:
    """Else a site whose cache lies on such a file system would read its data in every round."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    store, path = settled_side_file(tmp_path)
    monkeypatch.setattr(mmap, "mmap", refused)
    assert same(store.arrays("basis", "k"), STACKS)
    path.write_bytes(path.read_bytes()[:-1])
    assert store.arrays("basis", "k") is None


def test_a_side_file_that_was_written_just_now_is_not_taken_as_it_is(tmp_path) -> None:
    """Another write within one tick of the file system's clock would have the same times."""
    store = side_store(tmp_path)
    store.put_arrays("basis", "k", STACKS)
    assert same(store.arrays("basis", "k"), STACKS)
    assert not list(tmp_path.glob("*.seen"))


def test_a_side_file_of_something_else_is_lost(tmp_path) -> None:
    store = side_store(tmp_path)
    store.put_arrays("basis", "k", STACKS)
    (path,) = tmp_path.iterdir()
    heads: list[Any] = ["[]", "{}", '{"key": "k"}', '{"key": "k", "labels": 3}', "nonsense"]
    for head in heads:
        with path.open("wb") as file:
            np.savez(file, head=np.array(head))
        assert store.arrays("basis", "k") is None
    with path.open("wb") as file:
        np.save(file, np.arange(3))
    assert store.arrays("basis", "k") is None
    with path.open("wb") as file:  # a pickle is never opened
        np.savez(file, head=np.array({"key": "k"}, dtype=object))
    assert store.arrays("basis", "k") is None


# -- a site ----------------------------------------------------------------------------------------


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
    file = LedgerFile(path=tmp_path / "ledger.jsonl", site="B", max_total_epsilon=1.0)
    person = Person(label="sub-1", files=("f",))
    runs = AllRuns(
        file=file, dataset_id="", data=SimpleNamespace(people=[person], contents="c"),
    )  # fmt: skip
    assert runs.begin("0" * 32, "toy", CONFIG, promised=True)
    site = party(all_runs=runs, store=Charged(lines, card=CARD))
    site.ledger = ledger()
    site.charge(EVENT)
    (charge,) = file.find("0" * 32).charges
    assert (charge.phase, charge.round, charge.mu2) == ("pca", 1, str(EVENT.cost))
    spent = party(
        all_runs=replace(runs, file=replace(file, max_total_epsilon=1e-9)),
        store=MemoryStore("B", card=CARD),
    )
    spent.ledger, before = ledger(), file.path.read_bytes()
    with pytest.raises(PrivacyBudgetError, match="E260"):
        spent.charge(replace(EVENT, round=2))
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


def roster(*sites: str) -> Roster:
    entries = tuple(RosterEntry(site=s, nonce="0" * 32, n_subjects=4) for s in sites)
    return Roster(
        sites=entries, config="", space=FeatureSpace.of_matrix(6), n_basis=6, colluders=1,
        survivors=3, seeded=False, plan=(), warnings=(),
    )  # fmt: skip


def test_a_site_admits_settings_card_and_roster_one_after_the_other() -> None:
    card = SiteCard(
        protocol=1, version="", computation="", settings="", nonce="0" * 32, n_subjects=4,
        space=FeatureSpace.of_matrix(6), noise="os",
    )  # fmt: skip
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
        return STACKS

    site = party()
    assert site.cached("basis", "k", build) is site.cached("basis", "k", build)
    assert built == [1]
    site.cached("basis", "other", build)
    assert built == [1, 1]


def test_files_about_subjects_are_written_if_the_site_wants_them() -> None:
    from cape.protocol.outcome import SiteOutcome

    result = SiteOutcome(
        site="B", outcome_status="converged", names=(), time_courses=iter(()), ledger=ledger()
    )
    written: list[Any] = []

    class Written(MemoryStore):
        def write_results(self, result: Any, source: Any, policy: SitePolicy) -> None:
            written.append(result)

    party(store=Written("B")).publish(result)
    assert written == []
    allowed = party(store=Written("B"), policy=SitePolicy(private_results=True))
    allowed.publish("something else")
    assert written == []
    allowed.publish(result)
    assert written == [result]


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
    assert AggregatorContext(config=CONFIG).lost == frozenset()


def test_pinned_keys_are_the_site_s_own_files_or_there_are_none() -> None:
    with pytest.raises(ConfigError, match="key_trust=pinned is not possible here; use"):
        party(config=replace(CONFIG, key_trust="pinned")).identity_secret()
    keys = SimpleNamespace(secret=lambda site, fresh: (site, fresh))
    own = party(open_keys=lambda: keys)
    assert own.identity_secret() == own.identity_secret()  # a function of the run's secret
    assert own.identity_secret()[0] == "B"
    assert party().known_keys({"B": b"shown"}) == {"B": b"shown"}


# -- data in files ---------------------------------------------------------------------------------


def test_a_source_reads_when_first_asked_and_once(tmp_path, monkeypatch) -> None:
    loads: list[Any] = []
    data = SimpleNamespace(space=FeatureSpace.of_matrix(6), n_subjects=2, fingerprint="f")

    def load(base, given, config, *, site, working, strict, on_subject, **before):
        assert not strict
        on_subject(1, 2)  # nobody listens
        loads.append((base, given, site))
        return data, []

    monkeypatch.setattr("cape.data.load_site", load)
    monkeypatch.setattr(
        "cape.data.reduce_again", lambda data, B, config: iter([("a", (B, config))])
    )
    chosen = {"data": ["a.npy"], "policy": ["p.toml"], "contents": "f"}
    source = FileSource(tmp_path, chosen, CONFIG, "B")
    assert loads == []
    assert source.n_subjects == 2
    assert source.space == FeatureSpace.of_matrix(6)
    assert source.contents == "f"
    assert list(source.reduced(6)) == [("a", (None, CONFIG))]
    assert loads == [(tmp_path, {"data": ["a.npy"]}, "B")]
    changed = FileSource(tmp_path, {**chosen, "contents": "g"}, CONFIG, "B")
    with pytest.raises(DataError, match="E161 Files changed during the run at site B"):
        _ = changed.n_subjects


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
    monkeypatch.setattr(
        reading, "read_matrix", lambda run, *a: (reads.append(run.name), real(run, *a))[1]
    )
    source = FileSource(tmp_path, {}, config, "B")
    once = {label: Y.tobytes() for label, Y in source.reduced(9)}
    assert sorted(reads) == [f"sub-{m}.npy" for m in range(4)]
    again = {label: Y.tobytes() for label, Y in source.reduced(9)}  # nothing is kept any more
    assert len(reads) == 8
    assert again == once
    assert list(again) == list(once)


def test_a_source_is_the_folder_that_it_names(tmp_path) -> None:
    rng = np.random.default_rng(0)
    for m in range(3):
        np.save(tmp_path / f"sub-{m}.npy", rng.standard_normal((6, 9)))
    config = replace(CONFIG, mask="MNI152-8mm", n_features=6)
    source = FileSource(tmp_path, {}, config, "B")
    stacks = list(source.reduced(4))
    assert [label for label, _ in stacks] == ["sub-0", "sub-1", "sub-2"]
    assert source.n_subjects == 3
    assert len(source.contents) == 64


def test_a_site_checks_its_own_line_of_the_roster() -> None:
    card = SiteCard(
        protocol=1, version="", computation="", settings="", nonce="0" * 32, n_subjects=4,
        space=FeatureSpace.of_matrix(6), noise="os",
    )  # fmt: skip
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


def test_a_real_site_is_not_drawn_into_a_seeded_run() -> None:
    card = SiteCard(
        protocol=1, version="", computation="", settings="", nonce="0" * 32, n_subjects=4,
        space=FeatureSpace.of_matrix(6), noise="os",
    )  # fmt: skip
    site = party(source=SPACE_ONLY)
    site.admit(card)
    with pytest.raises(PrivacyBudgetError, match="E154"):
        site.admit(replace(roster("A", "B", "C"), seeded=True))
    hidden = party(source=SPACE_ONLY, policy=SitePolicy(simulation_seed=1))
    assert hidden.noise.label == "seeded"
    hidden.admit(card)
    with pytest.raises(PrivacyBudgetError, match="E160"):
        hidden.admit(roster("A", "B", "C"))
