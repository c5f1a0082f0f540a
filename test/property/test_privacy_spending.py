"""What several runs cost a person, against the definition, person by person."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from cape.privacy.cost import INFINITE
from cape.privacy.spending import Charge, RunSpending, Spending, largest_sum
from cape.site.ledger_lines import read_lines, run_line

PEOPLE = st.frozensets(
    st.frozensets(st.sampled_from("abcdef"), min_size=1, max_size=3).map(
        lambda p: " ".join(sorted(p))
    ),
    max_size=4,
)


@st.composite
def ledgers(draw) -> list[RunSpending]:
    made = []
    for number in range(draw(st.integers(1, 6))):
        units = draw(st.lists(st.sampled_from(["1/4", "1/2", "3", "infinite"]), max_size=2))
        charges = [Charge.of(phase="x", round=j, field="f", mu2=mu2) for j, mu2 in enumerate(units)]
        made.append(
            RunSpending(
                run=f"run {number}", dataset=draw(st.sampled_from("PQRS")), people=draw(PEOPLE),
                computation="c", date="2026-01-01", epsilon=1.0,
                delta=draw(st.sampled_from([1e-6, 1e-5])), promised=draw(st.booleans()),
                charges=tuple(charges),
            )
        )  # fmt: skip
    return made


def persons(runs: list[RunSpending]) -> list[set[str]]:
    """Merge whoever has a digest in common, until nobody has."""
    known = [set(person.split()) for run in runs for person in run.people]
    while True:
        for one in known:
            other = next((o for o in known if o is not one and o & one), None)
            if other is not None:
                one |= other
                known.remove(other)
                break
        else:
            return known


def by_definition(run: RunSpending, runs: list[RunSpending]) -> tuple[int, Fraction | None]:
    """Add mu^2 of every run that counts, for each person of a run; take the largest."""

    def holds(one: RunSpending, person: set[str]) -> bool:
        return any(set(other.split()) & person for other in one.people)

    def cost(one: RunSpending) -> Fraction:
        if one.charges and not one.promised:
            return Fraction(10**9)  # stands for infinity
        each = [10**9 if c.mu2 == "infinite" else Fraction(c.mu2) for c in one.charges]
        return Fraction(sum(each))

    worst, counted = Fraction(0), {run.run}
    for person in [p for p in persons(runs) if holds(run, p)] or [set()]:
        names = {run.dataset} | {one.dataset for one in runs if holds(one, person)}
        mine = [
            one for one in runs
            if one is run or (one.charges and (holds(one, person) or one.dataset in names))
        ]  # fmt: skip
        counted |= {one.run for one in mine}
        worst = max(worst, sum((cost(one) for one in mine), Fraction(0)))
    return len(counted), None if worst >= 10**9 else worst


@settings(deadline=None, max_examples=60)
@given(ledgers())
def test_a_total_is_that_of_the_person_who_spent_most(runs) -> None:
    spending = Spending(runs=tuple(runs))
    for run in runs:
        total = spending.of(run)
        count, worst = by_definition(run, runs)
        assert total.runs == count
        assert (total.cost == INFINITE) == (worst is None)
        if worst is not None:
            assert total.cost.mu2 == worst
        others = largest_sum(spending.others_by_person(run), {one.run: one.cost for one in runs})
        if total.cost != INFINITE:
            assert others.mu2 == total.cost.mu2 - run.cost.mu2


@settings(deadline=None, max_examples=20)
@given(ledgers())
def test_what_is_written_about_people_is_read_again(runs) -> None:
    lines: list[bytes] = []
    for run in runs:
        lines.append(run_line(run, lines))
    assert [run.people for run in read_lines(lines).runs] == [run.people for run in runs]
