"""The result of a run in one sentence, from results.json alone: for page, terminal and title."""

from __future__ import annotations

from cape.report.comparison import sentence_of
from cape.report.results import ComparisonResults, MapResults, Results, TableResults


def sentence(results: Results) -> str:
    """Return the result in a sentence; without networks, also the reason and the next step."""
    if isinstance(results, TableResults):
        n = len(results.tables)
        return "1 table was released." if n == 1 else f"{n} tables were released."
    if isinstance(results, ComparisonResults):
        answer = results.comparison
        return f"There is no answer: {results.reason}" if answer is None else sentence_of(answer)
    if not isinstance(results, MapResults):
        raise TypeError(f"no sentence for {type(results).__name__}")
    if results.verdict is not None:
        n, of = results.verdict.confirmed, results.n_components
        return f"{n} of {of} components {'is' if n == 1 else 'are'} confirmed."
    if results.status == "nothing_found":
        return f"No networks were found: {_why(results)}. {next_step(results)}"
    if results.status == "unclear":
        n = results.n_components
        return f"It is not clear whether these {n} maps are networks: {_why(results)}."
    if results.separation.kind == "spatial" and results.separation.claims is not None:
        return _claimed(results)
    return f"{results.n_components} maps were released; nothing tells whether they are networks."


def _claimed(results: MapResults) -> str:
    claims, of = results.separation.claims, results.n_components
    # Mirror images do not count; a pair that may be one network counts once (`algorithms.claims`).
    n = 0 if claims is None else claims.yes + claims.likely
    if n == 0:
        return f"None of the {of} maps is likely a network."
    if n == of:
        return f"All {of} maps are likely networks."
    return f"{n} of {of} maps {'are likely networks' if n > 1 else 'is likely a network'}."


def _why(results: MapResults) -> str:
    sides = results.separation.left_right
    if sides is None:
        return results.reason.rstrip(".")
    if sides.verdict == "unclear":
        return f"the left-right test gives {sides.z:z.1f}, between noise (below 2) and networks (4)"
    return f"the left-right test gives {sides.z:z.1f}, no more than smooth noise (below 2)"


def next_step(results: MapResults) -> str:
    """Return the next step after a run without networks, by its size and the needed size."""
    size, needed = results.g_eff, results.g_needed
    if size is not None and needed is not None and size < needed:
        return (
            f"The run was too small (effective size {size:.0f}, needed {needed:.0f}): ask cape "
            "budget what more people or a larger epsilon would do."
        )
    return "Look at the data first: cape validate at every site."
