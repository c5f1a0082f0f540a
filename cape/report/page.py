"""Compose pages: Python computes values, templates hold sentences and markup.

A page is one file without scripts that loads no other file.  An indented line of a template
continues the line above.
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
# Chapters: template, title, and the function that computes its own values from a folder and whether
# pictures are drawn (None: it has no own values).  A function that returns None omits the chapter.
Outline = tuple[tuple[str, str, Callable[[Folder, bool], Values | None] | None], ...]


def write_page(folder: Path, compose: Callable[[bool, str | None], str]) -> Path:
    """Write index.html and return its path.

    `compose` gets whether to draw pictures and, if not, the reason: "" if the extra is not
    installed, else the name of the error.
    """
    failure = ""
    if plots.installed():
        # The budget is spent already: an error in a picture must not cost the results.
        try:
            text = compose(True, None)
        except Exception as err:
            # Name only: the text of an error may hold values of subjects.
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
    """Return a page: `template` has title, strips and cards; all chapters get `values`."""
    environment = _environment(markup=True)
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    values = {**values, "illustrated": illustrated, "failure": failure, "style": _markup(style)}
    chapters = []
    for name, title, values_of in outline:
        own = {} if values_of is None else values_of(folder, illustrated)
        if own is not None:
            body = environment.get_template(f"{name}.html.j2").render({**values, **own})
            # Links use the name of the template as the anchor of a chapter.
            chapters.append((name.partition("/")[2], title, _markup(body)))
    text = environment.get_template(template).render({**values, "chapters": chapters})
    # Pages without pictures spell quotes this way, so that their bytes stay the same.
    return text if illustrated else text.replace("&#39;", "&#x27;").replace("&#34;", "&quot;")


def markup_of(template: str, *, code: str, data: str, **values: object) -> str:
    """Return a page with scripts, in which `code` and `data` are not escaped."""
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

    # Jinja has no loader that joins an indented line to the line above.
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=markup,  # noqa: S701 - False for plain texts alone
        # A missing value is an error, not a gap in a sentence.
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
    # As in settings.toml, to be copied from the page.
    if isinstance(value, bool):
        return "true" if value else "false"
    return "(empty)" if value in ("", None) else str(value)


def _markup(text: str) -> Any:
    import markupsafe

    return markupsafe.Markup(text)  # noqa: S704 - escaped already, or our own style sheet
