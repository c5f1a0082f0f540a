"""The engine alone, driving a toy protocol: sites send a number, the aggregator adds them."""

import dataclasses
import hashlib
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from cape.errors import ConsortiumError, MessageError, OutOfPhaseError, ProtocolError
from cape.protocol import phases
from cape.protocol.messages import Cursor, Progress
from cape.protocol.phases import (
    Attendance,
    Computation,
    Envelope,
    Phase,
    Run,
    accept,
    advance_aggregator,
    advance_site,
    check_table,
    next_cursor,
    prefix_of,
    start,
)
from cape.settings.config import Config


@dataclass(frozen=True)
class Number:
    value: int


@dataclass(frozen=True)
class Total:
    value: int


def add(party: Any, replies: Any, model: tuple[int, ...]) -> tuple[Total, str | None]:
    party.order.append(list(replies))
    total = Total(sum(reply.value for reply in replies.values()))
    return total, party.next


def phase(name: str, then: tuple[str, ...], **other: Any) -> Phase:
    fields: dict[str, Any] = {
        "reply": Number, "broadcast": Total, "combine": add,
        "answer": lambda site, model: Number(site.value + len(model)),
        "absorb": lambda model, total: Toy((*model, total.value)),
    }  # fmt: skip
    return Phase(name=name, then=then, **(fields | other))


class Toy(tuple):
    def attendance(self) -> Attendance | None:
        return None

    def progress(self, config: Config, ledger: Any, cursor: Cursor) -> Progress:
        return Progress(
            phase=cursor.phase, round=cursor.round, rounds=1, exchange=cursor.seq, exchanges=9,
            mu=0.0, mu_budget=0.0, epsilon=0.0, step=0.0, stability=0.0,
        )  # fmt: skip


FIRST, LAST = phase("first", ("first", "last")), phase("last", ())
TOY = Computation(
    name="toy", config=Config, model=Toy,
    table=(FIRST, LAST),
)  # fmt: skip
CONFIG = Config(epsilon=1.0, delta=1e-5)


def digest(message: Any) -> bytes:
    return hashlib.sha256(repr(message).encode()).digest()


def site(value: int = 1) -> Any:
    return SimpleNamespace(value=value, digest=digest, cursor=None, ledger="x")


def aggregator(name: str | None = "first") -> Any:
    return SimpleNamespace(order=[], next=name, digest=digest, cursor=None, ledger=None)


def rebound(run: Run, computation: Computation) -> Run:
    """Return the same state in a run of another table."""
    return replace(run, bound=computation.bind(CONFIG))


def replies(run, request=None, names=("b", "a", "c")) -> tuple[dict, dict]:
    runs, inbox = {}, {}
    for value, name in enumerate(names):
        runs[name], inbox[name] = advance_site(run, request, site(value))
    return runs, inbox


def test_a_run_of_the_toy_from_start_to_end() -> None:
    run = start(TOY.bind(CONFIG))
    assert (run.run, run.cursor, run.ledger, run.model) == (
        "",
        Cursor(seq=1, phase="first", round=1),
        None,
        (),
    )
    runs, inbox = replies(run)
    assert inbox["a"].cursor == Cursor(seq=1, phase="first", round=1)
    party = aggregator("first")
    state, request, ended = advance_aggregator(run, inbox, party)
    assert party.order == [["a", "b", "c"]]
    assert not ended
    assert state.cursor == request.cursor == Cursor(seq=2, phase="first", round=2)
    assert state.model == (3,)
    assert state.run == request.run == digest(Total(3))[:16].hex()
    assert request.progress.exchange == 2
    runs, inbox = replies(runs["a"], request)
    assert {run.model for run in runs.values()} == {state.model}
    assert [inbox[name].body.value for name in "bac"] == [1, 2, 3]
    state, request, ended = advance_aggregator(state, inbox, aggregator("last"))
    assert state.cursor == Cursor(seq=3, phase="last", round=1)
    assert request.run == digest(Total(3))[:16].hex()  # the name of the run stays
    runs, inbox = replies(runs["a"], request)
    state, request, ended = advance_aggregator(state, inbox, aggregator(None))
    assert ended
    assert request.cursor == state.cursor == Cursor(seq=3, phase="last", round=1)
    assert request.progress is None


def test_a_site_is_told_where_it_stands_and_gives_back_its_ledger() -> None:
    party = site()
    run, _ = advance_site(start(TOY.bind(CONFIG)), None, party)
    assert party.cursor == Cursor(seq=1, phase="first", round=1)
    assert party.ledger is None
    assert run.ledger is None

    def charging(own: Any, model: Any) -> Number:
        own.ledger = "charged"
        return Number(1)

    paid = replace(TOY, table=(replace(FIRST, answer=charging), LAST))
    assert advance_site(start(paid.bind(CONFIG)), None, site())[0].ledger == "charged"


def test_a_round_without_a_broadcast_is_the_first_one_only() -> None:
    run = replace(start(TOY.bind(CONFIG)), cursor=Cursor(seq=2, phase="first", round=2))
    with pytest.raises(ProtocolError, match="E205 expected seq 3, got none"):
        advance_site(run, None, site())


def request_after_first() -> tuple[Any, Envelope]:
    run = start(TOY.bind(CONFIG))
    _, inbox = replies(run)
    _, request, _ = advance_aggregator(run, inbox, aggregator("first"))
    return run, request


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"seq": 1}, ProtocolError, "E205 expected seq 2, got 1"),
        ({"seq": 3}, ProtocolError, "E205 expected seq 2, got 3"),
        ({"phase": "zzz"}, OutOfPhaseError, r"toy has no phase 'zzz' here; .*first.*last"),
        ({"round": 1}, ProtocolError, "expected seq round 2, got round 1"),
        ({"phase": "last", "round": 2}, ProtocolError, "expected seq round 1, got round 2"),
        ({"v": 0}, MessageError, "format 0 is not 1"),
        ({"run": "00"}, MessageError, "run 00 is not"),
        ({"config": "00"}, MessageError, "settings digest 00 is not"),
        ({"body": Number(3)}, MessageError, "run .* is not|first is answered by Total"),
    ],
)
def test_a_broadcast_that_does_not_follow_on_changes_nothing(changed, error, text) -> None:
    run, request = request_after_first()
    before = dataclasses.replace(run)
    with pytest.raises(error, match=text):
        advance_site(run, replace(request, **changed), site())
    assert run == before


def test_a_broadcast_of_another_type_is_refused_once_the_run_has_its_name() -> None:
    run, request = request_after_first()
    run = replace(run, run=request.run)
    with pytest.raises(MessageError, match="first is answered by Total"):
        accept(run, replace(request, body=Number(3)), site())


def test_a_reply_or_an_answer_of_another_type_is_refused() -> None:
    run = start(TOY.bind(CONFIG))
    _, inbox = replies(run)
    wrong = {**inbox, "b": replace(inbox["b"], body=Total(1))}
    with pytest.raises(MessageError, match="site b must send Number"):
        advance_aggregator(run, wrong, aggregator())
    bad = replace(FIRST, answer=lambda *a: Total(1))
    table = (bad, LAST)
    with pytest.raises(MessageError, match="first sends Number"):
        advance_site(rebound(run, replace(TOY, table=table)), None, site())
    bad = replace(FIRST, combine=lambda *a: (Number(1), "last"))
    table = (bad, LAST)
    with pytest.raises(MessageError, match="first answers Total"):
        advance_aggregator(rebound(run, replace(TOY, table=table)), inbox, aggregator())


@pytest.mark.parametrize(("name", "shown"), [(None, "end"), ("zzz", "zzz")])
def test_the_aggregator_is_bound_to_the_table_too(name, shown) -> None:
    run = start(TOY.bind(CONFIG))
    _, inbox = replies(run)
    with pytest.raises(OutOfPhaseError, match=f"no phase '{shown}' here; allowed"):
        advance_aggregator(run, inbox, aggregator(name))


@pytest.mark.parametrize(
    ("changed", "field"),
    [({"v": 3}, "format"), ({"run": "zz"}, "run"), ({"seq": 9}, "seq"), ({"phase": "q"}, "phase"),
     ({"round": 9}, "round")],
)  # fmt: skip
def test_sites_that_disagree_are_named_with_the_field(changed, field) -> None:
    run = start(TOY.bind(CONFIG))
    _, inbox = replies(run)
    value = next(iter(changed.values()))
    with pytest.raises(ConsortiumError, match=f"E204 {field} differs: c {value}, expected "):
        advance_aggregator(run, {**inbox, "c": replace(inbox["c"], **changed)}, aggregator())


def test_settings_are_compared_once_the_run_has_its_name() -> None:
    """In the first exchange `join` compares them: it can name the setting."""
    run = start(TOY.bind(CONFIG))
    _, inbox = replies(run)
    other = {**inbox, "c": replace(inbox["c"], config="00")}
    advance_aggregator(run, other, aggregator())
    run = replace(run, run="r")
    named = {name: replace(reply, run="r") for name, reply in other.items()}
    with pytest.raises(ConsortiumError, match="E204 settings digest differs: c 00, expected"):
        advance_aggregator(run, named, aggregator())


def test_sites_are_ordered_by_the_bytes_of_their_names() -> None:
    run = start(TOY.bind(CONFIG))
    names = ("\U0001f9e0", "b", "\uffff", "B", "a", "\u00e9")
    _, inbox = replies(run, names=names)
    party = aggregator()
    advance_aggregator(run, inbox, party)
    assert party.order == [sorted(names, key=str.encode)]


def attending(run: Run, least: int, *sites: str) -> Run:
    class Asked(Toy):
        def attendance(self) -> Attendance:
            return Attendance(sites=sites, least=least)

    return replace(run, model=Asked(run.model))


@pytest.mark.parametrize(
    ("least", "sites", "text"),
    [
        (3, "abc", ""),
        (3, "abcd", ""),
        (4, "abcd", "E156 Site d is missing or answered late in first round 1; the run ends"),
        (4, "dabce", "E156 Site d is missing"),
        (1, "ab", "E204 list of sites differs: c was not asked"),
        (2, "abx", "E204 list of sites differs: c was not asked"),
        (3, "abx", "E156 Site x is missing"),
    ],
)
def test_who_is_asked_must_answer(least, sites, text) -> None:
    run = start(TOY.bind(CONFIG))
    _, inbox = replies(run)
    party = aggregator()
    if text:
        with pytest.raises(ConsortiumError, match=text):
            advance_aggregator(attending(run, least, *sites), inbox, party)
        assert party.order == []
    else:
        advance_aggregator(attending(run, least, *sites), inbox, party)
        assert party.order


def test_a_stage_of_several_phases_shares_its_rounds() -> None:
    names = {"a": ("a.x",), "a.x": ("a.y",), "a.y": ("a", "b"), "b": ("b", "c"), "c": ()}
    table = tuple(phase(name, then) for name, then in names.items())
    toy = replace(TOY, table=table)
    run = start(toy.bind(CONFIG))
    seen = []
    for name in ("a.x", "a.y", "a", "a.x", "a.y", "b", "b", "c"):
        run = replace(run, cursor=next_cursor(run, name))
        seen.append((run.cursor.phase, run.cursor.round))
    assert seen == [
        ("a.x", 1), ("a.y", 1), ("a", 2), ("a.x", 2), ("a.y", 2), ("b", 1), ("b", 2), ("c", 1)
    ]  # fmt: skip
    assert len(set(seen)) == len(seen)
    assert run.cursor.seq == 9
    assert prefix_of("a.x") == prefix_of("a") == "a"


def test_opening_counts_seq_and_round() -> None:
    run = replace(start(TOY.bind(CONFIG)), cursor=Cursor(seq=7, phase="first", round=4))
    assert next_cursor(run, "first") == Cursor(seq=8, phase="first", round=5)
    assert next_cursor(run, "last") == Cursor(seq=8, phase="last", round=1)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([phase("a", ("a",)), phase("a", ())], "repeat"),
        ([phase("a", ("b",)), phase("b", ("a", "c")), phase("c", ())], "itself or later"),
        ([phase("a", ("c",)), phase("b", ("c",)), phase("c", ())], "never reached"),
        ([phase("a", ("b",)), phase("b", ("b",))], "only the last"),
        ([phase("a", ("b", "c")), phase("b", ()), phase("c", ())], "only the last"),
        ([phase("a", ("b",), reply=int), phase("b", ())], "dataclasses"),
        ([phase("a", ("b",)), phase("b", (), broadcast=dict)], "dataclasses"),
    ],
)
def test_a_wrong_table_is_refused(rows, text) -> None:
    with pytest.raises(ValueError, match=text):
        check_table(rows)


def test_a_table_lists_its_phases_in_order() -> None:
    bound = TOY.bind(CONFIG)
    assert list(bound.phases) == ["first", "last"]
    assert bound.phases["last"] is LAST
    assert (bound.first, bound.last) == ("first", "last")


def test_a_table_is_built_and_checked_once_for_the_same_settings(monkeypatch) -> None:
    built = []
    monkeypatch.setattr(phases, "check_table", built.append)
    other = replace(CONFIG, epsilon=1.125)
    assert TOY.bind(other) is TOY.bind(replace(other)) is not TOY.bind(CONFIG)
    assert len(built) == 1
