"""The consortium page: self-contained, readable by everybody, made of released files only."""

import dataclasses
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import cape.report
from cape.protocol.messages import FeatureSpace
from cape.report import brain, consortium_page, plots, privacy_json
from cape.report import page as page_module
from cape.report.results import LeftRightFigures, MapFolder, read_folder
from support import page_rules
from support import report_example as example

CANARY = "CANARY-sub-0815"


def kinds() -> dict[str, object]:
    # An 8 mm grid that lies in the brain, so that the template shows behind the maps.
    brain = dataclasses.replace(example.outcome(), settings={"mask": "MNI152-8mm", "delta": 1e-5})
    return {
        "brain": brain,
        "outline": example.outcome(rank=2, rounds=2),
        "square": example.outcome(FeatureSpace.of_matrix(60, (6, 10)), seeded=True),
        "columns": example.outcome(FeatureSpace.of_matrix(30), private=False),
    }


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("pages")
    for name, made in kinds().items():
        cape.report.write_results(root / name, made)
    cape.report.add_score(root / "square", q_ngi=0.02, map_correlation=0.97)
    with pytest.MonkeyPatch.context() as patch:
        for library in ("matplotlib", "nilearn"):
            patch.setitem(sys.modules, library, None)
        cape.report.write_results(root / "plain", example.outcome())
    cape.report.write_site(root / "site", example.site_outcome(example.outcome(), ("sub-01",)))
    names = [*kinds(), "plain"]
    return {**{name: root / name for name in names}, "site": root / "site" / "private"}


NAMES = ["brain", "outline", "square", "columns", "plain", "site"]


@pytest.fixture(params=NAMES)
def page(request, folders) -> str:
    return (folders[request.param] / "index.html").read_text(encoding="utf-8")


def test_the_rules_of_every_page_hold_and_it_is_in_english(page):
    assert page_rules.faults(page) == []
    assert page.startswith('<!DOCTYPE html>\n<html lang="en"')


def test_privacy_stands_before_the_first_picture_and_its_absence_before_all(page):
    body = page.split("<body>")[1]
    first = re.search("<p[^>]*>(.*?)</p>", body, re.S)[1].strip()
    if not first.startswith(("NOT PRIVATE", "PRIVATE, DO NOT SHARE")):
        assert "NOT PRIVATE" not in body
        said = body.partition("<section")[0]
        assert re.search(r"Privacy is\s+(strong|moderate|limited|weak)</b></a>", said)
        assert re.search(r"right at most\s+\d+ times in 100 \(a coin: 50\)", said)


@pytest.mark.parametrize("name", ["brain", "outline", "square", "columns"])
def test_pictures_are_there_and_every_figure_carries_the_label(folders, name):
    page = (folders[name] / "index.html").read_text()
    # Of a map on a grid: planes, large and in the mosaic
    maps = {"brain": 6, "outline": 4, "square": 3, "columns": 0}[name]
    private = name in ("brain", "outline")
    charts = 2 + private + (maps > 0)
    assert page.count("<img ") == maps + charts
    label = "Private: epsilon" if private else "NOT PRIVATE"
    captions = re.findall("<figcaption>(.*?)</figcaption>", page)
    assert len(captions) == charts
    assert all(label in caption for caption in captions)


def test_the_alternative_text_of_a_map_states_its_peak(folders):
    page = (folders["brain"] / "index.html").read_text()
    alts = [image["alt"] for image in page_rules.Page(page).all("img")]
    wanted = r"C0\d: peak (-?\d+ ){3}mm, z -?\d+\.\d\. Three planes through its largest cluster\."
    assert sum(bool(re.fullmatch(wanted, alt)) for alt in alts) == 6


@pytest.mark.parametrize("kind", ["brain", "square", "columns", "plain"])
def test_the_files_beside_the_page_are_those_that_are_there(folders, kind):
    """Maps under the names of other runs were listed, and those that lay there were not."""
    page = (folders[kind] / "index.html").read_text()
    table = page.partition("<caption>Files of this folder</caption>")[2].partition("</table>")[0]
    listed = re.findall(r'<th scope="row">(.+?)</th>', table)
    # Single maps stand in maps.tsv.
    there = (p.name for p in folders[kind].iterdir() if not p.name.endswith("_statmap.nii.gz"))
    assert listed == sorted(name for name in there if name != "index.html")


def test_a_file_of_somebody_elses_has_no_name_on_the_page(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    cape.report.write_results(tmp_path, example.outcome())
    for name in (f"results.{CANARY}.csv", f"{CANARY}.json", "components.xlsx"):
        (tmp_path / name).write_text("x")
    page = cape.report.render(tmp_path).read_text()
    assert "components.tsv" in page
    assert CANARY not in page
    assert "xlsx" not in page


def test_a_difference_that_rounds_to_nothing_has_no_sign():
    environment = page_module._environment(markup=True)
    macro = environment.get_template("left_right.html.j2").module.left_right
    sides = LeftRightFigures(
        statistic=-0.004, null=0.33, null_std=1.0, z=-0.04, verdict="nothing", mirrored=False
    )
    said = macro(sides)
    assert "mirroring: 0.00 (1:" in said
    assert "0.33; z of the\n  difference 0.0 (" in said or "0.33; z of the difference 0.0 (" in said


def test_without_the_extra_the_page_has_all_tables_and_no_pictures(folders):
    page = (folders["plain"] / "index.html").read_text()
    assert "<img" not in page
    assert "This page has no pictures, because the extra" in page
    for wanted in ("Guarantee by viewer", "Every release in order", "Every round", "All settings",
                   "C01", "z at peak", "Status 3 of 3 confirmed"):  # fmt: skip
        assert wanted in page


def test_without_nilearn_maps_are_drawn_over_their_outline(tmp_path, monkeypatch):
    """The pins of NeuroFLAME exclude it: pages had no pictures there."""
    monkeypatch.setitem(sys.modules, "nilearn", None)
    brain._anatomy.cache_clear()
    try:
        cape.report.write_results(tmp_path, kinds()["brain"])
    finally:
        brain._anatomy.cache_clear()
    page = (tmp_path / "index.html").read_text()
    assert page.count("<img") > 3
    assert "This page has no pictures" not in page
    assert (tmp_path / "networks.pdf").is_file()


def test_a_picture_that_fails_does_not_cost_the_results(folders, tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise ZeroDivisionError("private detail")

    folder = tmp_path / "run"
    shutil.copytree(folders["square"], folder)
    monkeypatch.setattr(plots, "draw_spectrum", fail)
    page = cape.report.render(folder).read_text()
    assert "drawing failed (ZeroDivisionError)" in page
    assert "private detail" not in page
    assert "Guarantee" in page or "NOT PRIVATE" in page


def test_rendering_again_gives_the_same_bytes(folders):
    before = (folders["square"] / "index.html").read_bytes()
    assert cape.report.render(folders["square"]) == folders["square"] / "index.html"
    assert (folders["square"] / "index.html").read_bytes() == before


def test_the_line_that_opens_a_map_shows_its_peak(folders, tmp_path):
    """Of few parcels all peaks were below the 2.5 of the printed line, which showed nothing."""
    folder = tmp_path / "run"
    shutil.copytree(folders["brain"], folder)
    (row, *rest) = (folder / "components.tsv").read_text().splitlines()[1:]
    header = (folder / "components.tsv").read_text().splitlines()[0]
    low = row.split("\t")
    low[header.split("\t").index("peak_z")] = "-1.7"
    (folder / "components.tsv").write_text("\n".join([header, "\t".join(low), *rest]) + "\n")
    for at, threshold in ((folders["brain"], "2.5"), (folder, "0.8")):
        assert f"threshold={threshold})" in cape.report.render(at).read_text()


def test_the_page_shows_nothing_but_the_released_files(folders, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(folders["columns"], folder)
    cape.report.write_site(folder, example.site_outcome(example.outcome(), (CANARY,)))
    (folder / f"{CANARY}_bold.txt").write_text(f"{CANARY} 0.123456789")
    opened: list[str] = []
    read_text, read_bytes = Path.read_text, Path.read_bytes
    monkeypatch.setattr(
        Path, "read_text", lambda p, *a, **k: opened.append(p.name) or read_text(p, *a, **k)
    )
    monkeypatch.setattr(Path, "read_bytes", lambda p: opened.append(p.name) or read_bytes(p))
    cape.report.render(folder)
    monkeypatch.undo()
    allowed = {"results.json", "privacy.json", "settings.json", "components.tsv", "rounds.tsv"}
    templates = {path.name for path in page_module.TEMPLATE_FOLDER.rglob("*.j2")}
    assert set(opened) <= allowed | templates | {"style.css", "matplotlibrc"}
    for path in folder.iterdir():
        if path.is_file() and CANARY not in path.name:
            assert CANARY.encode() not in path.read_bytes()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"results\.json"):
        cape.report.render(tmp_path)


def test_texts_of_people_are_escaped(tmp_path, monkeypatch):
    made = example.outcome(reason="<script>alert(1)</script>", warnings=("a & <b>",))
    made = dataclasses.replace(made, settings={**made.settings, "mask": '"><img src=x>'})
    for library in ("matplotlib", "nilearn"):
        monkeypatch.setitem(sys.modules, library, None)
    cape.report.write_results(tmp_path, made)
    page = (tmp_path / "index.html").read_text()
    assert "<script>" not in page
    assert "<img" not in page
    assert "a &amp; &lt;b&gt;" in page


@pytest.mark.long
@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("converged", "3 of 3 confirmed: the rounds separate in time"),
        ("unconfirmed", "time courses did not confirm them"),
        ("not_separated", "nothing was separated"),
        ("not_judged", "nothing in them tells"),
        ("max_rounds", "not clearly settled"),
        ("budget_exhausted", "budget was used up"),
        ("closed", "people of a site closed the run"),
        ("yielded", "a site gave its place"),
        ("diverged", "last good state"),
    ],
)
def test_the_status_is_explained_and_never_shown_as_success_when_it_is_not(status, words, tmp_path):
    cape.report.write_results(tmp_path, example.outcome(status=status))
    tone, text = paragraphs(read_folder(tmp_path), "quality")[0]
    assert words in text
    assert (tone == "warning") == (status != "converged")


def without_pictures(folder: MapFolder) -> str:
    values, chapters = consortium_page.values_of(folder), consortium_page.MAP_CHAPTERS
    return page_module.html_of(consortium_page.PAGE, chapters, folder, values, illustrated=False)


def paragraphs(folder: MapFolder, anchor: str) -> list[tuple[str, str]]:
    """Return the paragraphs of a chapter without pictures, each with its class."""
    text = without_pictures(folder)
    chapter = re.search(f'<section id="{anchor}">(.*?)</section>', text, re.S)[1]
    return re.findall(r'<p(?: class="(\w+)")?>(.*?)</p>', chapter, re.S)


@pytest.mark.parametrize(("changed", "why"), [
    ({}, "only sums over all sites are ever released"),
    ({"noise": "local"}, "is kept in no file"),
    ({"noise": "local", "aggregation": "secagg"}, "only sums over all sites are ever released"),
])  # fmt: skip
def test_the_page_says_why_the_agreement_of_sites_is_not_assessed(folders, changed, why):
    read = read_folder(folders["brain"])
    folder = dataclasses.replace(read, privacy=dataclasses.replace(read.privacy, **changed))
    texts = [text for _, text in paragraphs(folder, "sites")]
    (told,) = (text for text in texts if "Agreement of the sites" in text)
    assert "not assessed, because" in told
    assert why in told


def test_sums_under_gaussian_zero_sum_noise_are_seen_one_by_one(folders):
    privacy = read_folder(folders["brain"]).privacy
    seeded = tuple(dataclasses.replace(row, seed_ratio=4) for row in privacy.events)
    assert not privacy.single_sums_are_seen
    assert dataclasses.replace(privacy, events=seeded).single_sums_are_seen


def test_a_large_epsilon_is_called_weak(folders):
    told = {}
    read = read_folder(folders["brain"])
    for epsilon in (0.5, 2.0, 5.0, 20.0):
        privacy = privacy_json.statement(example.outcome())
        privacy = dataclasses.replace(privacy, epsilon=epsilon, mu=epsilon / 4)
        folder = dataclasses.replace(read, privacy=privacy)
        told[epsilon] = paragraphs(folder, "privacy")[0][1]
    assert "strong" in told[0.5]
    assert "moderate" in told[2.0]
    assert "limited" in told[5.0]
    assert "WEAK" in told[20.0]


@pytest.mark.parametrize(
    ("q", "told"),
    [
        (0.9, "yes</b> 94 to 95, <b>◐ likely</b> 72, <b>○ uncertain</b> 31 to 36."),
        (0.6, "yes</b> 94 to 95, <b>◐ likely</b> 68 to 72, <b>○ uncertain</b> 20 to 36."),
        (0.3, "yes</b> too few to tell, <b>◐ likely</b> 54 to 71, <b>○ uncertain</b> 13 to 29."),
    ],
)
def test_the_legend_of_the_words_is_that_of_cohorts_like_this_one(folders, q, told):
    """It gave the figures of a good cohort to one of which three quarters may be noise."""
    read = read_folder(folders["brain"])
    results = example.spatial_results("networks", "brain", z=9.0, yes=2, q=q, n_components=3)
    legend = paragraphs(dataclasses.replace(read, results=results), "components")[0][1]
    assert f"alike on both sides as this one ({100 * q:.0f} %)" in legend
    assert told in " ".join(legend.split())


def test_a_temporal_run_says_nothing_of_claims_where_its_own_maps_stand(folders):
    """The claims of its free spatial set stood over the mosaic of its components."""
    read = read_folder(folders["brain"])
    claimed = example.spatial_results("networks", "brain", z=9.0, yes=9).separation
    model = dataclasses.replace(claimed, kind="temporal")
    folder = dataclasses.replace(read, results=dataclasses.replace(read.results, separation=model))
    text = without_pictures(folder)
    first = text.partition('<section id="quality">')[0]
    assert "other people" not in first


def test_one_colour_limit_for_all_maps_between_4_and_12():
    z = np.random.default_rng(0).standard_normal((1000, 5))
    assert plots.colour_limit(z) == 4.0
    assert plots.colour_limit(z * 3) == 10.0
    assert plots.colour_limit(z * 50) == 12.0


def luminance(colour: str) -> float:
    values = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def colours(theme: str) -> dict[str, str]:
    """Return the colours of the style sheet by name, in daylight or in the dark."""
    style = (page_module.TEMPLATE_FOLDER / "style.css").read_text(encoding="utf-8")
    day, _, night = style.partition("prefers-color-scheme: dark")
    found = re.findall(r"--([a-z-]+): (#[0-9a-f]+);", day)
    if theme == "dark":
        found += re.findall(r"--([a-z-]+): (#[0-9a-f]+);", night)
    return {name: whole(colour) for name, colour in found}


def whole(colour: str) -> str:
    return "#" + "".join(2 * c for c in colour[1:]) if len(colour) == 4 else colour


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_enough_contrast_on_all_that_lies_below_it(theme):
    """WCAG AA, 4.5, from the colours of the style sheet: in the dark nothing had looked at them."""
    known = colours(theme)
    style = (page_module.TEMPLATE_FOLDER / "style.css").read_text(encoding="utf-8")
    # Text of either kind and links stand on the page and on its tinted boxes.
    pairs = {(ink, paper) for ink in ("ink", "soft", "accent") for paper in ("paper", "tint")}
    for rule in re.findall(r"{([^{}]*)}", style):
        ground = re.search(r"background: (?:var\(--([a-z-]+)\)|(#[0-9a-f]+))", rule)
        ink = re.search(r"(?:^|[ ;])color: (?:var\(--([a-z-]+)\)|(#[0-9a-f]+))", rule)
        if ground and ink:
            pairs.add((ink[1] or ink[2], ground[1] or ground[2]))
    if theme == "dark":  # .label, whose ground turns light
        pairs = (pairs - {("#fff", "ink")}) | {("paper", "ink")}
    assert len(pairs) >= 9
    for pair in pairs:
        one, other = (luminance(known.get(c) or whole(c)) for c in pair)
        light, dark = max(one, other), min(one, other)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, pair


def test_paper_is_white_and_shows_what_a_screen_folds():
    style = (page_module.TEMPLATE_FOLDER / "style.css").read_text(encoding="utf-8")
    printed = style.partition("@media print")[2]
    for rule in (
        "nav { display: none",
        "details::details-content { content-visibility: visible",
        "figure { break-inside: avoid",
        ".scroll, .picture { overflow: visible",
    ):
        assert rule in printed
    # The dark colours are those of a screen alone.
    assert "@media screen and (prefers-color-scheme: dark)" in style


def test_an_error_in_a_page_does_not_cost_the_results(tmp_path, monkeypatch):
    """The budget is spent and every file is there: the run has ended well."""

    def broken(folder):
        raise KeyError(CANARY)

    monkeypatch.setattr(consortium_page, "values_of", broken)
    cape.report.write_results(tmp_path, example.outcome())
    text = (tmp_path / "index.html").read_text()
    assert "could not be made (KeyError)" in text
    assert CANARY not in text
    assert (tmp_path / "results.json").exists()
    with pytest.raises(KeyError):  # who asks for the page learns why
        cape.report.rebuild(tmp_path)


def test_lines_in_pictures_have_enough_contrast_on_white():
    for colour in (plots.BLUE, plots.VERMILION, plots.GREY):
        assert 1.05 / (luminance(colour) + 0.05) >= 4.5


def test_no_template_has_a_comment_that_ends_with_its_line():
    """Pages join lines: such a comment in a script makes the rest of it a comment."""
    for path in page_module.TEMPLATE_FOLDER.rglob("*.j2"):
        assert not re.search(r"(?<!:)//", path.read_text(encoding="utf-8")), path.name


def test_the_images_list_of_fonts_is_copied_to_a_folder_of_this_process_alone(
    tmp_path, monkeypatch
) -> None:
    (tmp_path / "fontlist.json").write_text("{}")
    monkeypatch.setenv(plots.FONT_LIST, str(tmp_path))
    monkeypatch.setenv("MPLCONFIGDIR", "")
    monkeypatch.delenv("MPLCONFIGDIR")
    plots._take_font_list.__wrapped__()
    own = Path(os.environ["MPLCONFIGDIR"])
    assert (own / "fontlist.json").read_text() == "{}"
    assert own.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(own)
