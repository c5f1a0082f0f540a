"""From a page of plain records to HTML: through the template, or with nothing but Python."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path

from cape.report.page_model import Block, Bullets, Entry, Fold, Grid, Page, Picture, Section, Text

TEMPLATES = Path(__file__).parent / "templates"

HINT = (
    "This page has no pictures, because the extra 'report' (matplotlib, nilearn, jinja2) is not "
    "installed here. All files are complete; the command 'cape report' makes the page again "
    "where the extra is installed."
)


def rendered(compose: Callable[[bool], Page]) -> str:
    """Return the page with pictures, or with tables only where they cannot be drawn.

    The budget is spent when this runs: a library's trouble with one picture must not cost the
    results.

    Parameters
    ----------
    compose : callable
        Gets whether pictures are wanted.
    """
    from cape.report import plots

    if not plots.installed():
        return html(compose(False), hint=HINT)
    try:
        return from_template(compose(True))
    except Exception as err:  # the results are paid for: no library may cost them
        hint = f"This page has no pictures, because drawing failed ({type(err).__name__})."
        return html(compose(False), hint=hint)


def style() -> str:
    """Return the style sheet, which goes into the page."""
    return (TEMPLATES / "style.css").read_text(encoding="utf-8")


def from_template(page: Page) -> str:
    """Return the page by the template, pictures included; needs jinja2."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.html.j2").render(page=page, style=style())


def html(page: Page, *, hint: str = HINT) -> str:
    """Return the page without any library and without pictures."""
    banners = "".join(
        f'<p class="banner {kind}">{escape(text)}</p>\n' for kind, text in page.banners
    )
    cards = "".join(
        f'<div class="card"><dt>{escape(c.title)}</dt><dd><b>{escape(c.value)}</b> '
        f"<span>{escape(c.note)}</span></dd></div>\n"
        for c in page.cards
    )
    cards = f'<dl class="cards">\n{cards}</dl>\n' if cards else ""
    label = f'<p class="label">{escape(page.label)}</p>\n' if page.label else ""
    note = f'<p class="warning">{escape(hint)}</p>\n' if hint else ""
    body = "".join(_section(section) for section in page.sections)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(page.title)}</title>\n<style>\n{style()}</style>\n</head>\n<body>\n"
        f"{label}{banners}<main>\n<h1>{escape(page.title)}</h1>\n{note}{cards}{body}"
        "</main>\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    blocks = "".join(_block(block) for block in section.blocks)
    return (
        f'<section id="{section.anchor}">\n<h2>{escape(section.title)}</h2>\n{blocks}</section>\n'
    )


def _block(block: Block) -> str:
    """Return one block; pictures leave only the sentence that states what they show."""
    match block:
        case Text(text=text, tone=tone):
            return f'<p class="{tone}">{escape(text)}</p>\n' if tone else f"<p>{escape(text)}</p>\n"
        case Bullets(title=title, items=items):
            listed = "".join(f"<li>{escape(item)}</li>\n" for item in items)
            return f"<h3>{escape(title)}</h3>\n<ul>\n{listed}</ul>\n"
        case Grid():
            return _grid(block)
        case Fold(summary=summary, grid=grid, pictures=drawn):
            inside = (_grid(grid) if grid else "") + "".join(_block(p) for p in drawn)
            return f"<details><summary>{escape(summary)}</summary>\n{inside}</details>\n"
        case Picture(alt=alt):
            return f"<p>{escape(alt)}</p>\n"
        case Entry(title=title, facts=facts):
            line = ", ".join(f"{escape(name)} {escape(value)}" for name, value in facts)
            return f"<h3>{escape(title)}</h3>\n<p>{line}</p>\n"


def _grid(grid: Grid) -> str:
    head = "".join(
        f'<th scope="col"{_kind(grid, k)}>{escape(name)}</th>' for k, name in enumerate(grid.header)
    )
    rows = "".join(
        "<tr>" + "".join(_cell(grid, k, text) for k, text in enumerate(row)) + "</tr>\n"
        for row in grid.rows
    )
    words = ' class="words"' if grid.numeric_from >= len(grid.header) else ""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(grid.caption)}">'
        f"<table{words}>\n<caption>{escape(grid.caption)}</caption>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{rows}</tbody>\n</table></div>\n"
    )


def _cell(grid: Grid, column: int, text: str) -> str:
    if column == 0:
        return f'<th scope="row">{escape(text)}</th>'
    return f"<td{_kind(grid, column)}>{escape(text)}</td>"


def _kind(grid: Grid, column: int) -> str:
    return ' class="number"' if column >= grid.numeric_from else ""
