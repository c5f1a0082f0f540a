"""Lines of a ledger of all runs: each follows from the last, and damage is refused by its place."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from cape.errors import StateLostError
from cape.privacy.cost import FREE, INFINITE, Cost
from cape.privacy.spending import Charge, RunSpending, Spending
from cape.site.ledger_lines import FIRST_LINK, charge_line, next_line, read_lines, run_line
from support.spending import charge, run


def written(*adding) -> list[bytes]:
    """Lines of a ledger: each argument takes the lines so far and gives the next one."""
    lines: list[bytes] = []
    for add in adding:
        lines.append(add(lines))
    return lines


def opens(one: RunSpending):
    return lambda lines: run_line(one, lines)


def charges(name: str, one: Charge):
    return lambda lines: charge_line(name, one, lines)


def made(**document: Any):
    """A line that follows from the last, whatever it says."""

    def add(lines: list[bytes]) -> bytes:
        previous = hashlib.sha256(lines[-1]).hexdigest() if lines else FIRST_LINK
        place = {"v": 1, "seq": len(lines) + 1, "prev": previous}
        return json.dumps({**place, **document}).encode()

    return add


def test_runs_and_charges_are_read_as_they_were_written():
    lines = written(opens(run()), charges("one", charge(1)), charges("one", charge(2, "1/9")))
    (read,) = read_lines(lines).runs
    assert read == run(charges=(charge(1), charge(2, "1/9")))
    assert Cost(mu2=Fraction(13, 36)) <= read.cost
    assert read.cost.mu2 - Fraction(13, 36) < Fraction(1, 2**127)
    assert read_lines([]) == Spending()


def test_a_run_that_turned_out_to_promise_nothing_costs_infinity_once_it_was_charged():
    opening = written(opens(run()), lambda lines: next_line("unpromised", lines, run="one"))
    assert read_lines(opening).runs[0].cost == FREE
    lines = [*opening, charge_line("one", charge(), opening)]
    (read,) = read_lines(lines).runs
    assert not read.promised
    assert read.cost == INFINITE
    total = read_lines(lines).of(read)
    assert (total.mu, total.epsilon) == (None, None)


DAMAGE = {
    "no JSON": lambda lines: b"{",
    "another format": made(v=2, kind="unpromised", run="one"),
    "a run twice": opens(run()),
    "an unknown kind": made(kind="refund", run="one"),
    "a charge twice": charges("one", charge(1)),
    "a charge of no run": charges("two", charge(2)),
    "a charge of nothing": made(
        kind="charge", run="one", phase="pca", round=2, field="total", mu2="0"
    ),
    "a delta of one": made(kind="run", run="two", delta=1.0, people=["a"]),
    "somebody without a digest": made(
        **{"kind": "run", "run": "two", "delta": 0.1, "people": [" "]}
    ),
    "a place too far": lambda lines: made(kind="unpromised", run="one")([*lines, b"x"]),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=list(DAMAGE))
def test_a_damaged_line_is_refused_by_its_number(damage):
    good = written(opens(run()), charges("one", charge(1)))
    read_lines(good)
    with pytest.raises(StateLostError, match="line 3 is damaged"):
        read_lines([*good, damage(good)])


def test_lines_out_of_order_are_refused():
    lines = written(opens(run()), charges("one", charge(1)), charges("one", charge(2)))
    with pytest.raises(StateLostError, match="line 2 is damaged"):
        read_lines([lines[0], lines[2], lines[1]])
    with pytest.raises(StateLostError, match="line 1 is damaged"):
        read_lines(lines[1:])


def test_a_line_says_which_half_was_asked_and_older_lines_ask_all():
    halves = [charge(1), charge(2, part="A"), charge(3, part="B")]
    lines = written(opens(run()), *(charges("one", one) for one in halves))
    (read,) = read_lines(lines).runs
    assert read.charges == tuple(halves)
    assert read.cost == Cost(mu2=Fraction(1, 2))
    assert [json.loads(line).get("part") for line in lines[1:]] == [None, "A", "B"]


def people_of(numbers: Iterable[int]) -> frozenset[str]:
    return frozenset(hashlib.sha256(b"%d" % n).hexdigest()[:32] for n in numbers)


def test_a_list_of_people_stands_in_the_ledger_once_whatever_number_of_runs_has_it():
    """Every `join` wrote all digests: 100 of them made the next one cost 38 times the CPU."""
    runs, lines = [], []
    for k in range(100):
        runs.append(replace(run(f"run{k}"), people=people_of(range(1000))))
        lines.append(run_line(runs[-1], lines, runs[:-1]))
    assert max(map(len, lines[1:])) < 1000 < len(lines[0]) / 30
    read = read_lines(lines)
    assert read.runs == tuple(runs)
    assert len({id(one.people) for one in read.runs}) == 1


def test_people_who_come_and_go_are_read_as_they_were_written():
    lists = [range(50), range(3, 50), range(3, 53), range(100, 103), range(50), ()]
    runs, lines = [], []
    for k, numbers in enumerate(lists):
        runs.append(replace(run(f"run{k}"), people=people_of(numbers)))
        lines.append(run_line(runs[-1], lines, runs[:-1]))
    assert read_lines(lines).runs == tuple(runs)
    assert [len(json.loads(line)["people"]) for line in lines] == [50, 0, 3, 3, 0, 0]
    assert [len(json.loads(line).get("without", ())) for line in lines] == [0, 3, 0, 0, 0, 0]


@pytest.mark.parametrize("other", ["run7", "one"])
def test_a_list_of_a_run_that_is_not_there_is_damage(other):
    first = run_line(run(), [])
    document = json.loads(run_line(run("two"), [first], [run()]))
    assert document["listed_by"] == "one"
    if other == "one":  # a run that comes later
        lines = [json.dumps({**json.loads(first), "listed_by": "one"}).encode()]
    else:
        lines = [first, json.dumps({**document, "listed_by": other}).encode()]
    with pytest.raises(StateLostError, match="is damaged, missing or out of place"):
        read_lines(lines)
