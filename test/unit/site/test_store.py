"""What a site writes down: stored once, repeated exactly, refused otherwise."""

import json
import os
import stat
from pathlib import Path

import pytest

from cape.errors import ReplayError, StateLostError
from cape.site.policy import SitePolicy
from cape.site.store import Card, FileStore, JoinRecord, Receipt

NONCE, KEY = "0f" * 16, b"k" * 32


RECORD = JoinRecord(
    card=(NONCE, 3, "", "", ""),
    policy_at_join=SitePolicy(veto=True),
    identity="",
    contents="c",
    inputs={"data": ["a.npy"]},
)


def opened_with(store: FileStore, key: bytes) -> FileStore:
    """The same run, as a process sees it whose cache holds that key."""
    other = FileStore(store.output, store.output / "working", "B")
    other.resume(store.nonce, key, store.seq)
    return other


def store(folder: Path) -> FileStore:
    return FileStore(folder, folder / "working", "B")


@pytest.fixture
def journal(tmp_path) -> FileStore:
    made = store(tmp_path)
    made.begin(NONCE, KEY)
    return made


def folder(tmp_path: Path) -> Path:
    return tmp_path / ".cape" / NONCE


def test_a_stored_answer_is_returned_and_another_request_refused(journal, tmp_path) -> None:
    journal.store(1, "r1", {"output": 1})
    assert journal.answered(1, "r1") == {"output": 1}
    assert journal.answered(2, "r2") is None
    journal.store(2, "r2", {"output": 2})
    assert journal.answered(2, "r2") == {"output": 2}
    with pytest.raises(ReplayError, match="E203 round 2 was already answered"):
        journal.answered(2, "other")
    again = store(tmp_path)
    again.resume(NONCE, KEY, 3)
    assert again.answered(2, "r2") == {"output": 2}
    assert again.receipt() == Receipt(nonce=NONCE, seq=2, request="r2")


def test_only_the_last_answer_is_kept(journal, tmp_path) -> None:
    for seq in range(1, 5):
        journal.store(seq, f"r{seq}", {"output": seq})
    assert list(folder(tmp_path).iterdir()) == []
    receipt, answer = (tmp_path / ".cape" / "receipt.jsonl").read_bytes().split(b"\n")
    assert json.loads(receipt) == {"nonce": NONCE, "request": "r4", "seq": 4}
    assert json.loads(answer) == {"answer": {"output": 4}}


def test_a_cache_older_or_newer_than_the_receipt_is_lost_state(journal) -> None:
    journal.store(3, "r3", {})
    for seq in (1, 2, 5, 9):
        with pytest.raises(StateLostError, match="E210 state lost at site B: cache of round 3"):
            journal.answered(seq, f"r{seq}")


def test_a_receipt_of_another_run_is_lost_state(journal, tmp_path) -> None:
    journal.store(1, "r1", {})
    other = store(tmp_path)
    other.resume("00" * 16, KEY, 2)
    with pytest.raises(StateLostError, match="journal of this run is missing"):
        other.answered(1, "r1")


@pytest.mark.parametrize(
    "damage", [None, b"", b"{", b"[]", b"{}", b"\xff", b'{"nonce": "x", "seq": "y", "request": 1}']
)
def test_a_missing_or_damaged_receipt_is_lost_state(journal, tmp_path, damage) -> None:
    journal.store(1, "r1", {})
    path = tmp_path / ".cape" / "receipt.jsonl"
    answer = path.read_bytes().partition(b"\n")[2]
    path.unlink()
    if damage is not None:
        path.write_bytes(damage + b"\n" + answer)
    with pytest.raises(StateLostError, match="receipt is missing or damaged"):
        journal.answered(1, "r1")


@pytest.mark.parametrize("damage", [None, b"", b"{", b"[]", b"{}", b'{"answer": 7}', b"7"])
def test_a_missing_or_damaged_answer_is_lost_state(journal, tmp_path, damage) -> None:
    journal.store(2, "r2", {})
    path = tmp_path / ".cape" / "receipt.jsonl"
    receipt = path.read_bytes().partition(b"\n")[0]
    path.write_bytes(receipt if damage is None else receipt + b"\n" + damage)
    assert journal.answered(3, "r3") is None
    with pytest.raises(StateLostError, match="answer of round 2 is missing or damaged"):
        journal.answered(2, "r2")


def test_clearing_removes_everything(journal, tmp_path) -> None:
    journal.store(1, "r", {})
    journal.clear()
    assert list(tmp_path.iterdir()) == []
    journal.clear()


def test_a_secret_is_sealed_and_opens_with_its_key_only(journal, tmp_path) -> None:
    journal.keep("x25519", b"secret bytes")
    journal.seq += 1
    (path,) = folder(tmp_path).iterdir()
    assert b"secret" not in path.read_bytes()
    assert KEY not in path.read_bytes()
    assert journal.secret("x25519") == b"secret bytes"
    with pytest.raises(StateLostError, match="key of this run is missing or damaged"):
        opened_with(journal, b"q" * 32).secret("x25519")
    with pytest.raises(StateLostError):
        opened_with(journal, b"").secret("x25519")
    with pytest.raises(StateLostError):
        journal.secret("other")
    path.rename(path.with_name("vault-other.1"))  # bound to its name
    with pytest.raises(StateLostError):
        journal.secret("other")
    path.with_name("vault-other.1").rename(path.with_name("vault-x25519.0"))  # and to its round
    with pytest.raises(StateLostError):
        journal.secret("x25519")


def test_a_round_finds_what_earlier_rounds_left_until_its_answer_is_stored(journal, tmp_path):
    """Else a round whose answer could not be stored finds its own secrets, and nothing to do."""
    journal.keep("state", b"of round 1")
    for _ in range(2):
        journal.seq = 2
        assert journal.secret("state") == b"of round 1"
        journal.keep("state", b"of round 2")
    (folder(tmp_path) / "vault-state.3.partial").write_bytes(b"cut")
    opened_with(journal, KEY).store(2, "r2", {})  # a process that kept nothing
    journal.store(2, "r2", {})
    assert sorted(p.name for p in folder(tmp_path).glob("vault*")) == [
        "vault-state.2", "vault-state.3.partial",
    ]  # fmt: skip
    journal.seq = 3
    assert journal.secret("state") == b"of round 2"


def test_equal_secrets_are_sealed_equally_and_no_nonce_serves_two_texts(journal, tmp_path) -> None:
    """Two copies of a folder go on side by side."""
    journal.keep("a", b"first")
    path = folder(tmp_path) / "vault-a.1"
    first = path.read_bytes()
    journal.keep("a", b"first")
    assert path.read_bytes() == first
    journal.keep("a", b"other")
    assert path.read_bytes()[:12] != first[:12]


def test_a_secret_of_another_run_does_not_open(journal, tmp_path) -> None:
    journal.keep("x", b"secret")
    folder(tmp_path).rename(tmp_path / ".cape" / ("22" * 16))
    other = store(tmp_path)
    other.resume("22" * 16, KEY, 2)
    with pytest.raises(StateLostError):
        other.secret("x")


def test_burning_removes_secrets_and_nothing_else(journal, tmp_path) -> None:
    journal.store(1, "r", {})
    for name in ("x", "y"):
        journal.keep(name, b"secret")
    journal.burn()
    journal.burn()
    assert [p.name for p in folder(tmp_path).iterdir()] == []
    assert journal.answered(1, "r") == {}
    store(tmp_path).burn()  # no run: nothing to burn


def test_a_charge_is_written_once(journal, tmp_path) -> None:
    journal.charge({"round": 1, "phase": "pca"})
    journal.charge({"phase": "pca", "round": 1})
    journal.charge({"phase": "pca", "round": 2})
    lines = (folder(tmp_path) / "ledger.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2]


def test_without_its_folder_nothing_can_be_charged(journal) -> None:
    journal.clear()
    with pytest.raises(StateLostError, match="journal of this run is missing"):
        journal.charge({"phase": "pca"})


def test_what_the_site_mapped_is_kept(journal, tmp_path) -> None:
    journal.write_join(RECORD)
    assert journal.read_join() == RECORD
    assert journal.card == Card(NONCE, 3, "", "")
    for damage in (b"", b"{", b"[1]", b"7"):
        (folder(tmp_path) / "given.json").write_bytes(damage)
        with pytest.raises(StateLostError, match="list of mapped files is missing"):
            journal.read_join()


def test_files_are_for_the_site_s_own_user_only(journal, tmp_path) -> None:
    journal.store(1, "r", {})
    journal.keep("x", b"secret")
    journal.charge({})
    journal.write_join(RECORD)
    files = [p for p in (tmp_path / ".cape").rglob("*") if p.is_file()]
    assert len(files) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_receipt_and_answer_are_there_or_neither_is(journal, monkeypatch) -> None:
    journal.store(2, "r2", {"output": 2})

    def dies(*paths):
        raise InterruptedError

    monkeypatch.setattr(os, "replace", dies)
    with pytest.raises(InterruptedError):
        journal.store(3, "r3", {"output": 3})
    assert journal.answered(3, "other") is None  # nothing of round 3 has left
    assert journal.answered(2, "r2") == {"output": 2}


def test_an_answer_with_a_number_that_json_does_not_know_is_not_stored(journal) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        journal.store(1, "r", {"output": float("nan")})
    with pytest.raises(StateLostError):
        journal.receipt()
