"""Who looked at data and never answered is counted; what a round was asked is held to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cape.errors import ConfigError, ReplayError
from cape.site.access import AccessRecords


def records(tmp_path: Path) -> AccessRecords:
    return AccessRecords(
        ledger=tmp_path / "home" / "ledger.jsonl", site="B", owner="o", dataset_id=""
    )


def test_runs_that_looked_count_until_they_answer_for_their_owner_and_data_set(tmp_path) -> None:
    own = records(tmp_path)
    assert own.refusals() == 0
    for run in ("one", "two-total"):
        assert own.look(run)
    assert own.refusals() == 2
    assert (own.refusals(but="one"), own.refusals(end="-total")) == (1, 1)
    for other in (replace(own, owner="p"), replace(own, site="C"), replace(own, dataset_id="d")):
        assert other.refusals() == 0
    own.answered("one")
    own.answered("never looked")
    assert not own.has_looked("one")
    assert own.has_looked("two-total")
    (mark,) = (tmp_path / "home" / "ledger.jsonl.unanswered").iterdir()
    assert own.listed() == f"1 ({mark.parent}/{mark.name[:32]}-*)"


def test_one_run_too_many_does_not_look_and_the_same_one_may_look_again(tmp_path) -> None:
    own = records(tmp_path)
    assert own.look("one", most=1)
    assert own.look("one", most=1)
    assert not own.look("two", most=1)
    assert not own.has_looked("two")


def test_a_round_is_asked_one_question_whatever_its_folder_forgot(tmp_path) -> None:
    own = records(tmp_path)
    own.look("one")
    for _ in range(2):
        own.told("0f", 3, b"question")
    own.told("0f", 4, b"another round")
    own.told("0e", 3, b"another run")
    with pytest.raises(ReplayError, match="E203 round 3"):
        own.told("0f", 3, b"another question")


def test_a_ledger_where_no_folder_can_be_is_an_error_that_names_the_site(tmp_path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(ConfigError, match=r"E304 .*B"):
        records(tmp_path).look("one")
