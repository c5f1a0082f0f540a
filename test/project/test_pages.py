"""Pages of docs/ and other generated files are never stale, and hold what they promise."""

import dataclasses
import re
from pathlib import Path

import pytest

from cape.computations import load, names
from cape.data.issues import IssueCode
from cape.errors import CATALOGUE
from cape.settings.config import Config
from support.scripts import script

ROOT = Path(__file__).parents[2]
pages = script("pages")


@pytest.mark.parametrize("name", names())
def test_every_computation_has_a_page_that_runs_it_and_holds_its_settings(name: str) -> None:
    page = (ROOT / "docs" / "computations" / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name}: ")
    runs = re.findall(r"^\$ cape simulate .*$", page, re.MULTILINE)
    assert runs
    assert any(f"computation={name}" in run for run in runs) or name in ("capedjica", "capecca")
    for heading in ("Data", "esults"):
        assert re.search(rf"^\*\*[^*]*{heading}", page, re.MULTILINE), heading
    settings = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
    for spec in dataclasses.fields(load(name).config):
        if spec not in dataclasses.fields(Config):
            said = settings if spec in dataclasses.fields(load("capedjica").config) else page
            assert f"\n| `{spec.name}` |" in said
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    link = rf"\[{name}\]\(computations/{name}\.md\)"
    row = re.search(rf"^\| {link} \|.*\| (.+) \|$", index, re.MULTILINE)
    assert row, "docs/README.md has no row of this computation"
    assert (row[1] == "none") == (load(name).guarantee == "none")


def test_inputspec_is_the_same_in_both_places() -> None:
    top = (ROOT / "inputspec.json").read_bytes()
    assert top == (ROOT / "test" / "inputspec.json").read_bytes()


def test_generated_files_are_up_to_date() -> None:
    """If this fails: make compspec."""
    assert not pages.stale(ROOT)


def test_writing_repairs_what_is_stale_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    protocol = tmp_path / "docs" / "protocol.md"
    protocol.parent.mkdir()
    protocol.write_text(f"before\n{pages.BEGIN}\nold\n{pages.END}\nafter\n")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "inputspec.json").write_text("[]\n")
    assert pages.main([], tmp_path) == 0
    assert set(capsys.readouterr().out.split()) == {"written:", *pages.generated(tmp_path)}
    assert not pages.stale(tmp_path)
    page = protocol.read_text()
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert "old" not in page
    assert "`join`" in page
    target = tmp_path / "docs" / "errors.md"
    target.write_text("x")
    assert pages.main(["--check"], tmp_path) == 1
    assert capsys.readouterr().out == "stale: docs/errors.md (run: make compspec)\n"
    assert target.read_text() == "x"
    assert pages.main([], tmp_path) == 0
    assert capsys.readouterr().out == "written: docs/errors.md\n"
    assert pages.main(["--check"], tmp_path) == 0


def test_a_page_without_markers_is_an_error() -> None:
    with pytest.raises(ValueError, match="markers"):
        pages.with_rounds("text", "rounds")


def test_the_page_of_errors_has_every_code_once_and_every_rule() -> None:
    page = pages.errors_page()
    for code, text in CATALOGUE.items():
        (line,) = re.findall(rf"^- .*\bCAPE-{code}[,:].*", page, re.MULTILINE)
        assert re.split("[;{,.]", text)[0] in line
    for issue in IssueCode:
        (line,) = re.findall(rf"^- 1{issue.number:02d} .*", page, re.MULTILINE)
        assert f"`{issue.severity}`" in line
        if issue.number not in pages.MANY:
            assert re.split("[;:{,]", issue.problem)[0].replace("*", "\\*") in line, issue.name


def test_the_table_of_rounds_lists_every_phase_and_transition() -> None:
    product = load("capedjica")
    settings = {"epsilon": 1.0, "delta": 1e-5}
    text = pages.rounds_table(product, settings)
    phases = product.bind(product.config.from_input(settings)).phases
    for phase in phases.values():
        assert f"| `{phase.name}` | {phase.reply.__name__} |" in text
    arrows = len(re.findall(" --> ", text))
    assert arrows == sum(max(1, len(phase.then)) for phase in phases.values())


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page as GitHub makes them: of headings, and written ones."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_an_anchor_inside_the_project(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links: list[tuple[str, str]] = re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", text)
    for file, anchor in links:
        if "://" in file or file.startswith("mailto:"):
            continue
        target = (page.parent / file).resolve() if file else page
        assert target.is_relative_to(ROOT), file
        assert target.exists(), file
        assert not anchor or anchor in anchors_of(target), f"{file}#{anchor}"
