"""Print a planned run: releases, epsilon, the curve, and whether it will work."""

import math
from collections.abc import Sequence

from cape.cli.common import duration, say, table
from cape.counting import number_of
from cape.planning.budget import PlannedRun, StageSummary
from cape.planning.comparison_budget import PlannedComparison
from cape.privacy.accounting import display_epsilon
from cape.protocol.sizes import MAX_SITES
from cape.settings.wings import NEUROFLAME, missing

# (s per exchange, s per exchange and site) beside the sums.  Measured with all parties on one
# computer (docs/results.md, "Number of sites"); less if each party has its own.
SECONDS_PER_EXCHANGE = {
    "one computer": (0.01, 0.003),
    "COINSTAC": (0.055, 0.015),
    "FLARE": (0.05, 0.015),
    "a new process per exchange": (0.3, 0.15),
}


def print_plan(plan: PlannedRun, around: Sequence[tuple[str, PlannedRun]]) -> None:
    say(
        f"{number_of(plan.n_subjects, 'subject')} at {number_of(plan.n_sites, 'site')}, "
        f"{number_of(plan.n_components, 'component')}, basis of {plan.n_basis}, "
        f"assumed colluders: {plan.colluders}"
    )
    say(plan.why_sizes)
    say("")
    table(
        "Releases",
        ("phase", "releases", "numbers", "mu", "noise std of the mean"),
        [
            (s.phase, s.releases, s.size, "-" if s.mu is None else f"{s.mu:.4g}", _noise(s))
            for s in plan.stages
        ],
    )
    _print_epsilon(plan)
    releases = number_of(sum(stage.releases for stage in plan.stages), "release")
    exchanges = sum(traffic.exchanges for traffic in plan.weight.traffic)
    times = ", ".join(
        f"{duration(exchanges * (s + plan.n_sites * per_site))} on {way}"
        for way, (s, per_site) in SECONDS_PER_EXCHANGE.items()
    )
    verdict = plan.verdict
    _print_weight(plan)
    say(f"Traffic        {plan.bytes_per_site / 1000:.0f} kB from each site, in {releases}")
    waited = f"{number_of(exchanges, 'exchange')} of {number_of(plan.n_sites, 'site')}"
    say(f"Waiting        {waited}: {times}")
    if plan.weight.document and not missing(NEUROFLAME):  # it has no drop-outs
        from cape.engines.neuroflame.steps import CAP_SECONDS, EXCHANGE_SECONDS

        seconds = exchanges * EXCHANGE_SECONDS
        ends = "refused" if seconds > CAP_SECONDS else "beside reading and computing"
        say(
            f"NeuroFLAME     {duration(seconds)} of the {duration(CAP_SECONDS)} after which it "
            f"ends a run: {ends}"
        )
    if math.isfinite(verdict.map_energy):
        say(f"Map sharpness  E {verdict.map_energy:.2f} (share of the maps' energy in the basis)")
    _print_curve(plan)
    if around[1:]:
        rows = []
        for words, other in around:
            size, expected = f"{other.verdict.g:.0f}", other.advice.networks
            # Counts were measured for one number of maps at each size.
            expected = expected if expected.endswith(f" {other.n_components}") else "-"
            rows.append((words, size, other.advice.answer, other.n_components, expected))
        table("Around this plan", ("", "size", "works", "maps", "networks expected"), rows)
    _print_advice(plan)


def print_comparison(plan: PlannedComparison) -> None:
    question = "a pattern of " if plan.pattern else ""
    terms = ", ".join(term.term for term in plan.terms)
    say(
        f"{number_of(plan.n_subjects, 'subject')} at {number_of(plan.n_sites, 'site')}: {terms} in "
        f"{question}{number_of(plan.n_outcomes, 'outcome')}. Assumed colluders: {plan.colluders}"
    )
    say(plan.assumed)
    say("")
    _print_epsilon(plan)
    say("")
    say(
        "Expected results, in standard deviations of people within sites and groups: the standard "
        "error of a difference; the same if this term were asked alone; the smallest difference "
        "found with power .8, after Holm; the chance to find one of "
        f"{', '.join(f'{effect:g}' for effect in plan.effects)} by itself; the share of squared "
        "error that is privacy noise."
    )
    table(
        "What is asked",
        ("difference", "error", "alone", "finds", *(f"{d:g}" for d in plan.effects), "noise"),
        [
            (
                *(term.text, f"{term.se:.3f}", f"{alone:.3f}", f"{term.smallest:.2f}"),
                *(f"{power:.2f}" for power in term.power),
                f"{100 * term.privacy:.0f} %",
            )
            for term, alone in zip(plan.terms, plan.alone, strict=True)
        ],
    )
    table(
        "Other budgets, more people: the term with the largest error",
        ("people", "epsilon", "difference", "error", "finds", "noise"),
        [
            (
                *(row.n_subjects, f"{row.epsilon:g}", row.term, f"{row.se:.3f}"),
                *(f"{row.smallest:.2f}", f"{100 * row.privacy:.0f} %"),
            )
            for row in plan.others
        ],
    )
    exchanges = sum(traffic.exchanges for traffic in plan.weight.traffic)
    say(
        f"Traffic        {plan.bytes_per_site / 1000:.0f} kB from each site, in "
        f"{number_of(plan.releases, 'release')} and {number_of(exchanges, 'exchange')}"
    )
    say("")
    say(f"Will it work?  {plan.answer}", style="bold" if plan.usable else "bold red")
    if plan.helps:
        say(f"What would do, each by itself: {', '.join(plan.helps)}")


def _print_epsilon(plan: PlannedRun | PlannedComparison) -> None:
    # A viewer who knows more of the noise has a larger epsilon.
    if plan.mu is None or plan.epsilon is None:
        say("No noise: this run gives no privacy.", style="bold red")
    else:
        aggregator = f"the aggregator with {plan.colluders} of the sites"
        table(
            f"Total epsilon at delta {plan.delta:g}, mu {plan.mu:.4g}",
            ("against", "epsilon"),
            [
                ("a reader of the results", display_epsilon(plan.epsilon["outsider"])),
                ("one curious site", display_epsilon(plan.epsilon["one_site"])),
                (aggregator, display_epsilon(plan.epsilon["aggregator"])),
            ],
        )


def _print_weight(plan: PlannedRun) -> None:
    weight = plan.weight
    table(
        "Messages, in JSON",
        ("phase", "exchanges", "a site sends", "a site is told", "the aggregator gets"),
        [
            (t.phase, t.exchanges, _bytes(t.reply), _bytes(t.told), _bytes(t.reply * plan.n_sites))
            for t in weight.traffic
        ],
    )
    say(
        f"Held at once   {_bytes(weight.site_memory)} at a site, "
        f"{_bytes(weight.aggregator_memory)} at the aggregator, beside program and data; "
        f"state {_bytes(weight.state)}"
    )
    say(f"In all         {plan.site.sentence()}")
    if (graph := weight.graph) is not None:
        say(
            f"Masks          with {graph.neighbours} neighbours of {plan.n_sites - 1}, "
            f"{graph.threshold} of which open a secret; exposed or failed: below 2^-40 each"
        )
    if plan.breaks:
        say(f"More sites     breaks first at {plan.breaks}: {plan.breaks_by}")
    else:
        say(f"More sites     nothing breaks up to {MAX_SITES}")


def print_refusals(plan: PlannedRun | PlannedComparison, *, is_shipped: bool) -> None:
    """Say who would refuse the plan; `is_shipped`: no site's own policy was at hand."""
    if plan.refusal:
        code = plan.refusal.partition(" ")[0]
        say(f"A run is refused with {code}, without --set accept_low_quality=true.")
    if plan.sites_refuse:
        whose = "sites without a policy of their own" if is_shipped else "a site with this policy"
        text = f"{whose} would refuse the run: {plan.sites_refuse}"
        say(f"Site policies  {text} (cape policy)", style="yellow")


def _bytes(n: int) -> str:
    return f"{n / 1e6:.1f} MB" if n >= 10**6 else f"{n / 1000:.1f} kB"


def _print_advice(plan: PlannedRun) -> None:
    advice = plan.advice
    say("")
    say(f"Will it work?  {advice.sentence}", style=ADVICE_STYLES[advice.answer])
    if advice.changes:
        say("What would change it, each by itself:")
    for text in advice.changes:
        say(f"  {text}")
    # Warnings of the verdict come first: they tell synthetic from real measurements.
    for text in (*plan.verdict.warnings, *plan.warnings):
        say(text, style="yellow")


ADVICE_STYLES = {"yes": "bold", "perhaps": "bold yellow", "no": "bold red"}
# Longest bar of the curve, characters
BAR = 24


def _print_curve(plan: PlannedRun) -> None:
    if not plan.curve:
        return
    needed = plan.verdict.needed
    rows = []
    for point in plan.curve:
        # The bar ends at twice the needed G.
        bar = "#" * max(1, round(BAR * min(1.0, point.g / (2.0 * needed))))
        error = "-" if point.expected_q is None else f"{point.expected_q:.2f}"
        budget = f"{point.epsilon:g}" + (" (planned)" if point.epsilon == plan.planned else "")
        most = point.largest_n_components or "-"
        rows.append((budget, f"{point.g:.0f}", point.answer, most, error, bar))
    heading = SIZE_HEADINGS.get(plan.computation, "most components")
    table(
        f"The same sites and subjects at other budgets; {plan.n_components} components need "
        f"an effective size of {needed:.0f} for a yes",
        ("epsilon", "size", "works", heading, "error", f"up to {2 * needed:.0f}"),
        rows,
    )


# Heading of the column `largest_n_components`
SIZE_HEADINGS = {"capegica": "real data carried", "capedualreg": "most templates"}


def _noise(stage: StageSummary) -> str:
    first, last = f"{stage.noise_first:.3g}", f"{stage.noise_last:.3g}"
    return first if first == last else f"{first} to {last}"
