"""The one composer of pages: Python computes values, templates hold sentences and markup.

One file, no scripts, nothing to load.  An indented line of a template continues the one above.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cape.privacy.accounting import display_epsilon
from cape.report import files, plots

if TYPE_CHECKING:
    import jinja2

TEMPLATES: Final = Path(__file__).parent / "templates"
CONTINUED: Final = re.compile(r"\n +")

Values = Mapping[str, Any]
Folder = TypeVar("Folder")
# Of each chapter: template, title, and what computes its values (with pictures or without), if it
# needs more than the page's; values of None leave the chapter out.
Outline = tuple[tuple[str, str, Callable[[Folder, bool], Values | None] | None], ...]


def write_page(folder: Path, compose: Callable[[bool, str | None], str]) -> Path:
    """Write index.html and return its path.

    `compose` gets whether pictures are wanted, and why there are none: "" where the extra is not
    installed, else the name of the error; None with pictures.
    """
    failure = ""
    if plots.installed():
        # The budget is spent when this runs: a library's trouble with one picture must not cost
        # the results.
        try:
            text = compose(True, None)
        except Exception as err:
            # Only the name of the error: its text may hold values of subjects.
            failure = type(err).__name__
        else:
            return write_html(folder, text)
    return write_html(folder, compose(False, failure))


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
    """Return a page: `template` has title, strips and cards, `values` are for all its chapters."""
    environment = _environment(markup=True)
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    values = {**values, "illustrated": illustrated, "failure": failure, "style": _markup(style)}
    chapters = []
    for name, title, values_of in outline:
        own = {} if values_of is None else values_of(folder, illustrated)
        if own is not None:
            body = environment.get_template(f"{name}.html.j2").render({**values, **own})
            # People link to chapters, so the name of the template is part of the address.
            chapters.append((name.partition("/")[2], title, _markup(body)))
    text = environment.get_template(template).render({**values, "chapters": chapters})
    # Pages without pictures had a writer of their own once, which spelled quotes otherwise.  Their
    # bytes stay: the same result gives the same page.
    return text if illustrated else text.replace("&#39;", "&#x27;").replace("&#34;", "&quot;")


def markup_of(template: str, *, code: str, data: str, **values: object) -> str:
    """Return a page of its own; `code` and `data` stand in scripts and are not escaped."""
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    scripts = {"code": _markup(code), "data": _markup(data), "style": _markup(style)}
    return _environment(markup=True).get_template(template).render({**values, **scripts})


def text_of(template: str, **values: object) -> str:
    return _environment(markup=False).get_template(template).render(values)


def _source(name: str) -> str:
    return CONTINUED.sub(" ", (TEMPLATES / name).read_text(encoding="utf-8"))


@functools.cache
def _environment(*, markup: bool) -> jinja2.Environment:
    import jinja2

    # A loader of our own, because an indented line continues the one above it.
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=markup,  # noqa: S701 - False for plain texts alone
        # A name that a chapter did not get is an error, not an empty place in a sentence.
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["num"] = number
    environment.filters["epsilon"] = display_epsilon
    environment.filters["setting"] = setting_text
    return environment


def number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def setting_text(value: object) -> str:
    # As in settings.toml, so that a setting can be copied from the page.
    if isinstance(value, bool):
        return "true" if value else "false"
    return "(empty)" if value in ("", None) else str(value)


def _markup(text: str) -> Any:
    import markupsafe

    return markupsafe.Markup(text)  # noqa: S704 - escaped already, or our own style sheet
