"""Print the results of a run on this computer, in the words of its page."""

import shlex
import textwrap
import webbrowser
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.text import Text

from cape.cli.common import STDERR, STDOUT, result, say, warn
from cape.counting import number_of
from cape.privacy.accounting import display_epsilon
from cape.report import files, maps, network_maps
from cape.report.comparison_words import who_of
from cape.report.maps import Component
from cape.report.results import (
    ComparisonResults,
    MapResults,
    Results,
    TableResults,
    next_step,
    order_line,
    read_results,
    sentence,
)
from cape.settings.documents import parse_json

TEXT_WIDTH = 80
# The sentence explains these statuses, or they need no explanation
NO_REASON = ("networks", "released", "converged", "unclear", "nothing_found")


def print_results(folder: Path, *, as_json: bool, quiet: bool, show: bool = False) -> None:
    """Print the results of a run from its files; `show` opens its page in a browser.

    Without a terminal only the paths go to stdout, one a line, the page first.
    """
    paths = {path.name: str(path) for path in sorted(folder.iterdir()) if path.is_file()}
    listed = [paths[n] for n in ("index.html", "results.json", "privacy.json") if n in paths]
    try:
        _print_story(folder, paths, as_json=as_json, quiet=quiet)
    except Exception as err:  # the results are written, so the run has ended well
        warn(f"the results are written, but not shown here: {type(err).__name__}", as_json=as_json)
    if not as_json and (quiet or not STDOUT.is_terminal):
        for path in listed:
            say(path)
    if show and not webbrowser.open((folder / "index.html").absolute().as_uri()):
        warn(f"no browser was found here: open {folder / 'index.html'}", as_json=as_json)


def _print_story(folder: Path, paths: Mapping[str, str], *, as_json: bool, quiet: bool) -> None:
    if as_json:
        outcome = parse_json((folder / "results.json").read_text(encoding="utf-8"))
        result({**outcome, "paths": paths}, as_json=True)
    elif not quiet:
        headline, *rest = _story(folder, paths, to_open=STDOUT.is_terminal)
        # If stdout holds paths, the story goes to stderr, as progress does.
        out = STDOUT if STDOUT.is_terminal else STDERR
        out.print(Text(headline, style="bold"))
        out.print(Text("\n".join(rest)))
    elif not read_results(folder).private:
        warn("NOT PRIVATE: these results have no privacy guarantee")


def _story(folder: Path, paths: Mapping[str, str], *, to_open: bool) -> Iterator[str]:
    results = read_results(folder)
    headline = sentence(results)
    if isinstance(results, MapResults) and results.verdict and not results.verdict.confirmed:
        headline = f"{headline} {next_step(results)}"
    yield from textwrap.wrap(headline, TEXT_WIDTH)
    if isinstance(results, ComparisonResults) and results.comparison.effects:
        yield from textwrap.wrap(who_of(results.comparison), TEXT_WIDTH)
    if results.counted is not None:
        yield from textwrap.wrap(results.counted.sentence, TEXT_WIDTH)
    if isinstance(results, MapResults):
        yield from _by_word(folder)
    size = f"{results.who_counts} people, {number_of(results.n_sites, 'site')}"
    if results.private:
        spent, planned = map(display_epsilon, (results.epsilon_spent, results.epsilon_planned))
        size = f"{size}; epsilon {spent} of {planned} spent (delta {results.delta:g})"
    yield ""
    order = order_line(results) if isinstance(results, MapResults) else ""
    for line in (size, order, *_warnings(results)):
        yield from textwrap.wrap(line, TEXT_WIDTH, initial_indent="  ", subsequent_indent="  ")
    if to_open:
        yield ""
        yield from _to_open(folder, results, paths)


def _warnings(results: Results) -> Iterator[str]:
    if not results.private:
        yield "NOT PRIVATE: no privacy guarantee. Do not share results of real data."
    if results.simulation:
        data = ", on synthetic data" if results.synthetic else ""
        yield f"Simulation: all sites ran on this computer{data}."
    if results.departed:
        yield f"Dropped out: {', '.join(results.departed)}."
    if isinstance(results, MapResults) and results.status not in NO_REASON:
        yield f"Status {results.status}: {results.reason}"


def _by_word(folder: Path) -> Iterator[str]:
    """Yield the maps grouped by verdict, in the words and the order of the page."""
    names_by_word: dict[str, list[str]] = {}
    counted: set[tuple[str, str]] = set()
    results = read_results(folder)
    ending = maps.ENDINGS[results.feature_space]
    found = network_maps.read_regions(folder / f"{maps.file_of(results.status)}{ending}")
    for k, row in enumerate(files.read_rows(folder / "components.tsv", Component)):
        word = (row.found_again or row.verdict or "").partition(",")[0]
        mirror = f"={row.mirror_of}" if row.mirror_of else ""
        if (word, row.mirror_of) in counted:  # a pair counts once, as in the sentence
            continue
        counted.add((word, row.name))
        name = row.label or ""
        if maps.FEW_REGIONS in (row.found_again or ""):
            word = maps.FEW_REGIONS
            name = " + ".join(one for one, _ in (found.strongest(k) if found else ()))
        names_by_word.setdefault(word, []).append(f"{row.name}{mirror} {name}".strip())
    words = ("yes", "likely", "uncertain", "image", "in halves", "maybe", maps.FEW_REGIONS)
    names_by_word.pop("", None)
    if names_by_word:
        yield ""
    for word in sorted(
        names_by_word, key=lambda w: (words.index(w) if w in words else len(words), w)
    ):
        head = f"  {word:<11} {len(names_by_word[word]):>2}   "
        yield from textwrap.wrap(
            ", ".join(names_by_word[word]),
            TEXT_WIDTH,
            initial_indent=head,
            subsequent_indent=" " * len(head),
        )
    if any("=" in name for names in names_by_word.values() for name in names):
        yield "  =: mirror images of each other; one of them may be only an image"


def _to_open(folder: Path, results: Results, paths: Mapping[str, str]) -> Iterator[str]:
    yield f"  look   {folder / 'index.html'}"
    if isinstance(results, TableResults):
        for table in results.tables:
            yield f"  table  {paths[table.file]}"
    elif isinstance(results, ComparisonResults) and "effects.tsv" in paths:
        yield f"  table  {paths['effects.tsv']}"
    elif isinstance(results, MapResults):
        name = maps.file_of(results.status)
        yield from (f"  maps   {paths[file]}" for file in paths if file.partition(".")[0] == name)
    yield f"  check  cape budget --check {shlex.quote(str(folder / 'privacy.json'))}"
    if sites := sorted(folder.parent.glob("*/private/index.html")):
        yield f"  site   {sites[0]}: what stays at the first site"
        if len(sites) < len(list(folder.parent.glob("*/private/site.json"))):
            yield f"  sites  cape report {shlex.quote(str(folder.parent))} draws the others' pages"
