"""The trace and the charges of a run, as a party's state carries them."""

import warnings
from dataclasses import replace
from typing import Any

import pytest

from cape.engines.coinstac import documents
from cape.errors import MessageError, PrivacyBudgetError, StateLostError
from cape.privacy.ledger import Budget, Ledger
from cape.protocol import wire
from cape.protocol.model import Trace, records, start_trace, with_row
from cape.protocol.plan import make_plan
from cape.simulation import memory
from support import several, tiny

GONE = {2: ["site0", "site1", "site3"], 3: ["site0", "site3"]}


@pytest.fixture(scope="module")
def runs() -> list[Any]:
    """States of the first site after every answer of a run that releases three means."""
    found: list[Any] = []
    real = memory.advance_site

    def heard(run: Any, request: Any, party: Any) -> Any:
        after, reply = real(run, request, party)
        if party.id == "site0":
            found.append(after)
        return after, reply

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setattr(memory, "advance_site", heard)
        tiny.released(tiny.link_of(tiny.settings(), tiny.data_of(4)))
    return found


def text_of(run: Any) -> bytes:
    return wire.dumps(documents.encode_run(run))


def test_a_state_is_as_long_in_the_last_round_as_in_the_second(runs) -> None:
    """Every round was a line more to write and to read for every party: 11 kB became 17 in 20."""
    lengths = [len(text_of(run)) for run in runs if run.cursor.phase == "mean"]
    assert len(lengths) == 3
    # Floats have more or fewer digits; a record of a round had 150 characters, a charge 200.
    assert abs(lengths[2] - lengths[1]) < 60


def test_the_records_are_those_of_the_releases_in_order(runs) -> None:
    last = runs[-1].model
    found = records(last.trace, last.roster)
    assert [(record.phase, record.round) for record in found] == [("mean", n) for n in (1, 2, 3)]
    assert found[-1].statistic_norm == last.mean.record.statistic_norm
    assert records(None, last.roster) == ()


def test_who_falls_silent_is_in_the_records_until_then(runs) -> None:
    roster = runs[-1].model.roster
    sites = [entry.site for entry in roster.sites]
    trace = start_trace(roster.plan)
    for round_ in (1, 2, 3):
        trace = with_row(trace, roster, "mean", (1.0, 2.0, 3.0, round_), GONE.get(round_, sites))
        assert trace.last_step == (3.0, round_)
    assert [list(record.survivors) for record in records(trace, roster)] == [
        sites,
        GONE[2],
        GONE[3],
    ]
    assert [record.stability for record in records(trace, roster)] == [1.0, 2.0, 3.0]


def test_a_release_that_was_not_planned_has_no_row(runs) -> None:
    last = runs[-1].model
    for phase in ("mean", "pca"):
        with pytest.raises(MessageError, match="more releases than planned"):
            with_row(last.trace, last.roster, phase, (0.0,) * 4, ())
    with pytest.raises(MessageError, match="another length than its plan"):
        Trace(released="10", rows=bytes(32))


@pytest.mark.parametrize("lines", ["110", "011", "000", "1111", ""])
def test_charges_that_are_not_those_of_the_ledger_are_refused(runs, lines: str) -> None:
    """Only the digest of all charges tells a state that lost one: it would allow one too many."""
    last = runs[-1]
    plan = last.model.roster.plan
    charges = documents.charges_of(last.ledger, plan)
    assert charges.lines == "111"
    assert documents.ledger_of(charges, plan) == last.ledger
    with pytest.raises(PrivacyBudgetError, match="E235"):
        documents.ledger_of(replace(charges, lines=lines), plan)
    twice = (plan[0], *plan[:-1])  # two releases of one name, which could be told from no other
    with pytest.raises(PrivacyBudgetError, match=r"E235 .*not of this plan"):
        documents.ledger_of(charges, twice)
    document = documents.encode_run(last)
    document["head"]["charges"]["lines"] = lines
    with pytest.raises(StateLostError, match="E210"):
        documents.decode_run(tiny.TINY, document, party="site0")


@pytest.mark.parametrize("lines", ["00000", "10000", "11000", "11010", "11111"])
def test_a_state_says_which_releases_of_a_round_were_charged(lines: str) -> None:
    """A letter for each release, not for each round: a round may have been charged in part."""
    config = several.SeveralConfig(epsilon=1.0, delta=1e-3)
    plan = make_plan(config, several.stages(config), n_sites=4, n_subjects=20)
    ledger = Ledger(budget=Budget.of(epsilon=1.0, delta=1e-3))
    for event, line in zip(plan, lines, strict=True):
        ledger = ledger.charge(event) if line == "1" else ledger
    charges = documents.charges_of(ledger, plan)
    assert charges.lines == lines
    assert documents.ledger_of(charges, plan) == ledger
    if "0" in lines:
        with pytest.raises(PrivacyBudgetError, match="E235"):
            documents.ledger_of(replace(charges, lines="11111"), plan)


def test_a_row_of_the_trace_is_a_round(runs) -> None:
    config = several.SeveralConfig(epsilon=1.0, delta=1e-3)
    plan = make_plan(config, several.stages(config), n_sites=4, n_subjects=20)
    roster = replace(runs[-1].model.roster, plan=plan)
    trace = start_trace(plan)
    assert (trace.released, records(trace, roster)) == ("00", ())
    for number in (1, 2):
        trace = with_row(trace, roster, "look", (1.0, 2.0, 3.0, number), ())
        assert [record.round for record in records(trace, roster)] == [1, 2][:number]
    with pytest.raises(MessageError, match="more releases than planned"):
        with_row(trace, roster, "look", (0.0,) * 4, ())
