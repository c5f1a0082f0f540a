"""Bits that must not change: result files, messages on the wire, data, and what commands print.

`runs.json` was recorded by ``python test/golden/record.py``.  A change that alters a result on
purpose records anew and says so; nothing else touches the file.  The bits hang on libraries and
kernels too: on other ones the digests are not compared and the test is skipped with that reason,
after it has seen the same files and the same messages.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from golden import digests, player
from golden.scenarios import PLAYS
from support import page_rules

RECORDED = json.loads(Path(__file__).with_name("runs.json").read_text(encoding="utf-8"))
MOST_TOLD = 12


def plays() -> list[Any]:
    """Every way of every play; memory and processes are held against one record."""
    return [
        pytest.param(
            name, through, id=f"{name}-{through}",
            marks=[pytest.mark.slow] if through in play.slow else [],
        )
        for name, play in PLAYS.items()
        for through in play.through
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "through"), plays())
def test_no_bit_of_a_run_changes(name: str, through: str, tmp_path: Path) -> None:
    recorded, now = RECORDED["plays"][name], player.play(name, through, tmp_path)
    for page in tmp_path.rglob("index.html"):
        assert page_rules.faults(page.read_text(encoding="utf-8")) == [], page
    for text in tmp_path.rglob("*.md"):
        assert page_rules.plurals_of_one(text.read_text(encoding="utf-8")) == [], text
    other = other_environment(RECORDED["made_with"], now["made_with"])
    if other:
        told = digests.shape_differences(recorded, now)
    else:
        told = digests.differences(recorded, now, player.reader(name, tmp_path))
    assert not told, report(name, through, told)
    if other:
        pytest.skip(
            f"the files and messages are the recorded ones, bits were not compared: {other}"
        )


def other_environment(recorded: dict[str, str], now: dict[str, str]) -> str:
    """Name what is not as it was when the bits were recorded."""
    return "; ".join(
        f"{what} {recorded.get(what)} then, {now.get(what)} now"
        for what in {**recorded, **now}
        if recorded.get(what) != now.get(what)
    )


def report(name: str, through: str, told: list[str]) -> str:
    """Return the words for a person who changed something."""
    more = len(told) - MOST_TOLD
    return "\n".join(
        [
            f"run {name} through {through} is not what was recorded; what came first, comes first:",
            *(f"  {line}" for line in told[:MOST_TOLD]),
            *([f"  ... and {more} more"] if more > 0 else []),
            f"To see it: python test/golden/record.py {name} --keep FOLDER, before and after.",
        ]
    )


def test_every_play_is_recorded_and_nothing_else() -> None:
    assert list(RECORDED["plays"]) == list(PLAYS)


def test_the_large_arrays_travel_as_files() -> None:
    carried = RECORDED["plays"]["large-arrays"]["by process"]
    assert any(name.endswith("reply of data, files") for name in carried)


def test_the_layout_of_a_page_does_not_count_but_its_words_do() -> None:
    page = b"<p>\n  one <b>two</b>\n</p>\n"
    assert digests.normal("a.html", page) == digests.normal("a.html", b"<p> one  <b>two</b></p>")
    assert digests.entry("a.html", page) != digests.entry("a.html", page.replace(b"two", b"ten"))


def test_a_changed_line_of_a_file_is_named() -> None:
    old = b"".join(b"line %d\n" % k for k in range(500))
    new = old.replace(b"line 333\n", b"line CCC\n")
    told = digests.differing_part("a.tsv", digests.entry("a.tsv", old), new)
    assert "line CCC" in told
    assert told.startswith("lines 331 to 341 of 500")


def test_a_changed_field_of_a_message_is_named_and_so_is_another_order() -> None:
    old = b'{"body":{"a":1,"b":[1,2]},"seq":3}'
    entry = digests.message(old)
    changed, turned = b'{"body":{"a":1,"b":[1,3]},"seq":3}', b'{"seq":3,"body":{"a":1,"b":[1,2]}}'
    assert digests.differing_fields(entry, changed) == "differs in body.b"
    assert digests.message(turned) != entry


def test_a_missing_message_and_a_new_file_are_named() -> None:
    nothing: dict[str, Any] = {"data": {}, "messages": {}, "files": {}, "printed": {}}
    recorded = {**nothing, "messages": {"001 join": "x"}}
    now = {**nothing, "files": {"a.json": "y"}}
    assert digests.shape_differences(recorded, now) == [
        "messages: missing now: 001 join",
        "files: new: a.json",
    ]


def test_another_environment_is_spelled_out() -> None:
    assert other_environment({"numpy": "1"}, {"numpy": "2"}) == "numpy 1 then, 2 now"
