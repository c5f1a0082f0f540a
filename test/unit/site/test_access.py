"""Who looked at data and never answered is counted; what a round was asked is held to."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from cape.errors import ConfigError, ReplayError
from cape.protocol import wire
from cape.site.access import AccessRecords, clock_of, read_accesses, record_request
from cape.site.files import folder_lock

FACTS = {"question": "q", "folder": "", "exchange": "join"}


def records(tmp_path: Path, **changed: object) -> AccessRecords:
    own = AccessRecords(
        ledger=tmp_path / "home" / "ledger.jsonl", site="B", owner="o", dataset_id="",
        held=lambda: set(),
    )  # fmt: skip
    return replace(own, **changed)


def test_runs_that_looked_count_until_they_answer_for_their_owner_and_data_set(tmp_path) -> None:
    own = records(tmp_path)
    assert own.counted() == []
    assert own.record("one", FACTS)
    assert own.record("two-total", {**FACTS, "exchange": "zero-sum round 1"}, kind="spent")
    assert [access.state for access in own.counted()] == ["stopped", "refused by the total"]
    assert [access.exchange for access in own.counted(but="one")] == ["zero-sum round 1"]
    assert [access.kind for access in own.counted(of_total=True)] == ["spent"]
    for other in ({"owner": "p"}, {"dataset_id": "d"}):
        assert records(tmp_path, **other).counted() == []
    own.clear("one")
    own.clear("never looked")
    assert not own.has("one")
    assert own.has("two-total")
    (file,) = (tmp_path / "home" / "ledger.jsonl.unanswered").iterdir()
    assert os.stat(file).st_mode & 0o777 == 0o600


def test_one_run_too_many_does_not_look_and_the_same_one_may_look_again(tmp_path) -> None:
    own = records(tmp_path)
    assert own.record("one", FACTS, most=1)
    assert own.record("one", FACTS, most=1)
    assert not own.record("two", FACTS, most=1)
    assert not own.has("two")


def test_the_same_question_answered_in_another_folder_counts_no_more(tmp_path) -> None:
    """COINSTAC never asks the same folder again after a stop, so three stops locked everybody out.

    What is answered now was not refused because of what the files hold.
    """
    own = records(tmp_path)
    for name in ("first", "second"):
        own.record(name, FACTS)
    own.record("later", {**FACTS, "exchange": "pca round 1"})
    own.record("other", {**FACTS, "question": "r"})
    own.record("first-total", FACTS, kind="spent")
    own.record("third", FACTS)
    own.clear("third", question="q", exchange="join")
    left = {name.partition("-")[2] for name in read_accesses(own.ledger)}
    assert left == {"later", "other", "first-total"}
    own.record("nameless", {**FACTS, "question": "", "exchange": ""})
    own.clear("x", question="", exchange="")
    assert own.has("nameless")


def test_a_question_that_was_answered_counts_once_until_a_run_has_paid(tmp_path) -> None:
    own = records(tmp_path)

    def ask(name: str, checks: str) -> bool:
        if not own.record(name, {**FACTS, "question": name, "checks": checks}, most=2):
            return False
        own.asked(name)
        own.clear(name)
        return True

    assert [ask(f"{k}", "same") for k in range(4)] == [True] * 4
    assert ask("other", "b")
    assert [access.state for access in own.counted()] == ["answered, never charged"] * 2
    assert not ask("third", "c")
    assert ask("again", "same")  # it tells nothing new
    assert records(tmp_path, site="by another name").counted() == own.counted()
    # A stop by a question that was answered before: one of both counts.
    own.record("stop", {**FACTS, "checks": "same"})
    assert len(own.counted()) == 2
    own.clear("stop")
    own.paid("b")
    assert ask("third", "c")
    own.paid("never asked")
    assert len(own.counted()) == 2


def test_a_record_of_an_earlier_version_is_found_and_cleared(tmp_path) -> None:
    """Its name was made with that of the site, and it says nothing of checks."""
    own = records(tmp_path)
    own.record("one", FACTS)
    (file,) = (tmp_path / "home" / "ledger.jsonl.unanswered").iterdir()
    text = file.read_text().replace(', "checks": ""', "")
    assert "checks" not in text
    whose = hashlib.sha256(wire.dumps(["B", "o", ""])).hexdigest()[:32]
    old = file.rename(file.with_name(f"{whose}-one"))
    old.write_text(text)
    assert len(own.counted()) == 1
    own.clear("x", question="q", exchange="join")
    assert own.counted() == []
    old.write_bytes(b"")  # damaged: whose it is stands in its name
    assert len(own.counted()) == 1
    assert records(tmp_path, owner="p").counted() == []


def test_an_answer_elsewhere_clears_nothing_that_is_still_under_way(tmp_path) -> None:
    """It may yet end otherwise."""
    own, folder = records(tmp_path), tmp_path / "run"
    folder.mkdir()
    own.record("first", {**FACTS, "folder": str(folder)})
    with folder_lock(folder, "site B"):
        own.clear("second", question="q", exchange="join")
        assert own.has("first")
    own.clear("second", question="q", exchange="join")
    assert not own.has("first")


def test_who_was_refused_while_others_held_the_room_counts_as_long_as_one_of_them_holds_it(
    tmp_path,
) -> None:
    held: set[str] = {"a", "b"}
    own = records(tmp_path, held=lambda: held)
    own.record("one-total", FACTS, kind="wait", waits_for=("a", "c"))
    assert [access.state for access in own.counted()] == ["refused while others held it"]
    held.remove("a")
    assert own.counted() == own.counted(of_total=True) == []


def test_a_record_of_older_software_or_a_damaged_one_counts_and_says_nothing(tmp_path) -> None:
    own = records(tmp_path)
    own.record("one", FACTS)
    (file,) = (tmp_path / "home" / "ledger.jsonl.unanswered").iterdir()
    file.write_bytes(b"")
    file.with_name(f"{file.name}-total").write_bytes(b"{")
    (file.parent / ".cape.lock").touch()
    assert [access.kind for access in own.counted()] == ["open", "spent"]
    assert {access.owner for access in own.counted()} == {""}


def test_an_exchange_whose_process_works_is_under_way(tmp_path) -> None:
    own, folder = records(tmp_path), tmp_path / "run"
    folder.mkdir()
    own.record("one", {**FACTS, "folder": str(folder)})
    (access,) = own.counted()
    assert access.state == "stopped"
    with folder_lock(folder, "site B"):
        assert access.state == "under way"
    assert access.state == "stopped"


def test_a_round_is_asked_one_question_whatever_its_folder_forgot(tmp_path) -> None:
    own = records(tmp_path)
    own.record("one", FACTS)
    for _ in range(2):
        with own.lock_run("0f") as record_question:
            record_question(3, b"question")
    with own.lock_run("0f") as record_question:
        record_question(4, b"another round")
    with own.lock_run("0e") as record_question:
        record_question(3, b"another run")
    with own.lock_run("0f") as record_question, pytest.raises(ReplayError, match="E203 round 3"):
        record_question(3, b"another question")


def test_silence_counts_from_the_last_time_that_somebody_asked(tmp_path) -> None:
    own = records(tmp_path)
    own.record("one", FACTS)
    clock = clock_of(own.ledger)
    assert clock.silence("0f") == 0.0  # nobody knows: it keeps its place
    record_request(own.ledger, "0f")
    path = own.ledger.with_name("ledger.jsonl.rounds") / "0f"
    os.utime(path, (1e9, 1e9))
    assert clock.silence("0f") > 86400
    assert not clock.is_running("0f")
    with own.lock_run("0f"):
        assert clock.silence("0f") < 60
        assert clock.is_running("0f")
    os.utime(path, (1e12, 1e12))  # a clock that was set back since
    assert clock.silence("0f") == 0.0


def test_a_ledger_where_no_folder_can_be_is_an_error_that_names_the_site(tmp_path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(ConfigError, match=r"E304 .*B"):
        records(tmp_path).record("one", FACTS)
