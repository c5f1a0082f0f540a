"""The paragraph for the methods section of a paper, and what to cite.

Written from the records of the result folder, so that it can be made again.
"""

from __future__ import annotations

from collections.abc import Mapping

from cape.report.page import text_of
from cape.report.privacy_json import PrivacyStatement
from cape.report.results import MapResults, Results, separation_of


def label_line(results: Results) -> str:
    """Return the sentence on privacy that stands first in the page and under every picture."""
    return text_of("label.txt.j2", results=results)


def references(results: MapResults) -> tuple[str, ...]:
    return tuple(text_of("references.txt.j2", atlas=results.labels.template).splitlines())


def paragraph(
    results: MapResults, privacy: PrivacyStatement, settings: Mapping[str, object]
) -> str:
    kind = separation_of(settings)
    words = {"pca": "subspace", "whitening": "whitening", "solver": "solver"}
    return text_of(
        "methods_paragraph.txt.j2",
        results=results,
        privacy=privacy,
        settings=settings,
        kind=kind,
        # Only the temporal model has these stages, whatever else its settings may name.
        algorithms=[
            f"{word} '{settings[key]}'"
            for key, word in words.items()
            if key in settings and kind == "temporal"
        ],
        # Who is in the last sum: the text must not count those that left.
        present={s: n for s, n in results.sites.items() if s not in results.departed},
    )


def document(results: MapResults, privacy: PrivacyStatement, settings: Mapping[str, object]) -> str:
    return text_of(
        "methods.md.j2",
        label=label_line(results),
        paragraph=paragraph(results, privacy, settings),
        references=references(results),
    )
