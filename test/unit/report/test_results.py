"""The sentence of a run says what came out, from its record alone."""

import dataclasses

import pytest

from cape.algorithms.claims import Claims, MapClaim
from cape.report.consortium import _claim_figures, results_of
from cape.report.results import HalfFigures, Results, TableFile, TableResults, order_line, sentence
from support import report_example as example
from support.report_example import spatial_results as spatial


@pytest.mark.parametrize(
    ("yes", "likely", "said"),
    [
        (9, 1, "9 of 15 maps are networks, 1 more may be: about 11 are expected to be."),
        (1, 0, "1 of 15 maps is a network: about 5 are expected to be."),
        (0, 4, "None of 15 maps is surely a network, 4 may be: about 6 are expected to be."),
        (0, 0, "None of 15 maps is surely a network: about 4 are expected to be."),
        (15, 0, "All 15 maps are networks."),
    ],
)
def test_networks_and_what_may_be_some_are_counted_apart(yes, likely, said):
    assert sentence(spatial("networks", "brain", z=9.0, yes=yes, likely=likely)) == said


def test_without_noise_the_sentence_is_about_these_people():
    made = spatial("networks", "brain", z=9.0)
    halves = HalfFigures(in_halves=12, maybe=2)
    model = dataclasses.replace(made.separation, claims=None, halves=halves)
    made = dataclasses.replace(made, separation=model, suggested_n_components=14)
    said = sentence(made)
    assert said == "12 of 15 maps are found again in other halves of these people, 2 more may be."
    assert order_line(made).startswith("Suggested number of components: 14 (here 15), the smallest")
    assert order_line(dataclasses.replace(made, suggested_n_components=None)) == ""
    private = dataclasses.replace(spatial("networks", "brain", z=9.0), suggested_n_components=14)
    assert order_line(private) == ""


def test_a_run_that_found_nothing_gives_the_reason_and_what_next_by_its_size():
    large = spatial("nothing_found", "nothing", z=-2.4)
    said = sentence(large)
    assert said.startswith("No networks were found: the left-right test gives -2.4, no more than")
    assert said.endswith("Look at the data first: cape validate at every site.")
    small = sentence(dataclasses.replace(large, g_eff=40.0))
    assert "The run was too small (effective size 40, needed 90): ask cape budget" in small


def test_a_test_that_is_not_clear_is_no_finding():
    said = sentence(spatial("unclear", "unclear", z=3.0))
    assert said.startswith("It is not clear whether these 15 maps are networks: ")
    # Rounded, 3.97 was "4.0, between noise (below 2) and networks (4)".
    assert "gives just below 4, between" in sentence(spatial("unclear", "unclear", z=3.97))
    assert "gives just below 2, no" in sentence(spatial("nothing_found", "nothing", z=1.96))
    assert "gives 2.0, between" in sentence(spatial("unclear", "unclear", z=2.01))


def test_of_a_run_judged_by_time_courses_the_confirmed_components_are_counted():
    assert sentence(results_of(example.outcome(rank=3))) == "3 of 3 components are confirmed."
    none = results_of(example.outcome(rank=3, status="unconfirmed"))
    assert sentence(none) == "0 of 3 components are confirmed."


def test_a_run_of_tables_counts_them():
    made = results_of(example.outcome(rank=3))
    shared = {f.name: getattr(made, f.name) for f in dataclasses.fields(made)}
    shared = {f.name: shared[f.name] for f in dataclasses.fields(Results)}
    table = TableFile(file="mean.csv", title="Means", note="")
    assert sentence(TableResults(**shared, tables=(table,))) == "1 table was released."


def test_a_run_expects_as_many_networks_as_its_claims_add_up_to():
    """README said 8 and 5 more, the plan of the same people 12, and readers saw two answers."""
    claims = [
        MapClaim(word=word, found=found, strict=found, sharp=False, pair=pair)
        for word, found, pair in (
            ("yes", 0.9, 0), ("likely", 0.6, 3), ("likely", 0.5, 2), ("image", None, 1),
            ("uncertain", 0.25, 0), ("yes", 0.95, 0),
        )
    ]  # fmt: skip
    few = [False] * 5 + [True]
    figures = _claim_figures(Claims(cohort=1.0, maps=tuple(claims)), few)
    assert figures.expected == pytest.approx(0.9 + 0.6 + 0.25)  # no image, a pair once, none of few
    assert (figures.yes, figures.likely, figures.few) == (1, 1, 1)
