"""Compose pages: Python computes values, templates hold sentences and markup.

A page is one file without scripts that loads no other file.  An indented line of a template
continues the line above.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cape.counting import number_of
from cape.privacy.accounting import display_epsilon
from cape.report import files, plots

if TYPE_CHECKING:
    import jinja2

TEMPLATE_FOLDER: Final = Path(__file__).parent / "templates"
CONTINUED: Final = re.compile(r"\n +")
# Cells of a table that say nothing
_EMPTY: Final = frozenset({"", "-", files.EMPTY_CELL})
_CELL: Final = re.compile(r"<td([^>]*)>(.*?)</td>", re.DOTALL)

NO_PAGE: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>cape</title>
<p>All results are in the files beside this page. The page itself could not be made ({error}).
<code>cape report</code> with the name of this folder tries again and says why.</p></html>
"""
Values = Mapping[str, Any]
Folder = TypeVar("Folder")
# Chapters: template, title, and the function that computes its own values from a folder and whether
# pictures are drawn (None: it has no own values).  A chapter is left out if the function returns
# None or the template gives no text.
Outline = tuple[tuple[str, str, Callable[[Folder, bool], Values | None] | None], ...]


def write_page(
    path: Path, template: str, outline: Outline[Folder], folder: Folder, values: Values
) -> Path:
    """Write index.html into `path`, with pictures if they can be drawn; return its path."""
    failure = ""
    if plots.has_matplotlib():
        # The budget is spent already: an error in a picture must not cost the results.
        try:
            text = html_of(template, outline, folder, values, illustrated=True)
        except Exception as err:
            # Name only: the text of an error may hold values of subjects.
            failure = type(err).__name__
        else:
            return write_html(path, text)
    text = html_of(template, outline, folder, values, illustrated=False, failure=failure)
    return write_html(path, text)


def of_run(draw: Callable[[Path], Path], folder: Path) -> Path:
    """Draw the page of a run whose results are written; an error leaves a page that says so.

    The budget is spent, so no sentence or table may cost the results.  OSError passes: a full disk
    is no mistake in the page.
    """
    try:
        return draw(folder)
    except OSError:
        raise
    except Exception as err:
        # Name only, as in `write_page`
        return write_html(folder, NO_PAGE.format(error=type(err).__name__))


def write_html(folder: Path, text: str) -> Path:
    target = folder / "index.html"
    files.write_text(target, text)
    return target


def html_of(
    template: str,
    outline: Outline[Folder],
    folder: Folder,
    values: Values,
    *,
    illustrated: bool,
    failure: str | None = None,
) -> str:
    """Return a page: `template` has title, strips and cards; all chapters get `values`."""
    # `failure`: why there are no pictures: "" if the extra is not installed, else the name of the
    # error; None if the page has none by design.
    environment = _environment(markup=True)
    style = (TEMPLATE_FOLDER / "style.css").read_text(encoding="utf-8")
    values = {**values, "illustrated": illustrated, "failure": failure, "style": _markup(style)}
    chapters = []
    for name, title, values_of in outline:
        chapter_values = {} if values_of is None else values_of(folder, illustrated)
        if chapter_values is None:
            continue
        body = environment.get_template(f"{name}.html.j2").render({**values, **chapter_values})
        if body.strip():
            # Links use the name of the template as the anchor of a chapter.
            chapters.append((name.partition("/")[2], title, _markup(body)))
    text = environment.get_template(template).render({**values, "chapters": chapters})
    # Pages without pictures spell quotes this way, so that their bytes stay the same.
    return text if illustrated else text.replace("&#39;", "&#x27;").replace("&#34;", "&quot;")


def text_of(template: str, **values: object) -> str:
    return _environment(markup=False).get_template(template).render(values)


def _source(name: str) -> str:
    return CONTINUED.sub(" ", (TEMPLATE_FOLDER / name).read_text(encoding="utf-8"))


@functools.cache
def _environment(*, markup: bool) -> jinja2.Environment:
    import jinja2

    # Jinja has no loader that joins an indented line to the line above.
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=markup,  # noqa: S701 - False for plain texts alone
        # A missing value is an error, not a gap in a sentence.
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["num"] = number_text
    environment.filters["number_of"] = number_of
    environment.filters["epsilon"] = display_epsilon
    environment.filters["setting"] = setting_text
    environment.filters["filled_columns"] = filled_columns
    return environment


def number_text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def setting_text(value: object) -> str:
    # As in settings.toml, to be copied from the page.
    if isinstance(value, bool):
        return "true" if value else "false"
    return "(empty)" if value in ("", None) else str(value)


def filled_columns(
    rows: Sequence[str], header: Sequence[str]
) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """Return which columns of a table are not empty, and the rows of these alone."""
    # Every cell carries the name of its column, which narrow screens show beside it.
    names, table = [escape(name) for name in header], [_CELL.split(str(row)) for row in rows]
    cells = [(row[1::3], row[2::3]) for row in table]  # marks and texts
    kept = [
        k for k in range(len(header) - 1) if not _EMPTY.issuperset(text[k] for _, text in cells)
    ]
    made = (
        "".join(f'<td data-name="{names[k + 1]}"{marks[k]}>{texts[k]}</td>' for k in kept)
        for marks, texts in cells
    )
    body = (_markup(f"{row[0]}{tds}</tr>") for row, tds in zip(table, made, strict=True))
    return (0, *(k + 1 for k in kept)), tuple(body)


def _markup(text: str) -> Any:
    import markupsafe

    return markupsafe.Markup(text)  # noqa: S704 - escaped already, or our own style sheet
