"""Wings are left out: the installed package without one works, and says what is missing.

The folder `cape/` is copied to an empty place and wings are deleted there; everything else runs in
processes that find this copy alone.  Belongs to `cape/settings/wings.py`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cape
from cape.cli import main
from cape.cli.commands import COMMANDS, LEFT_OUT
from cape.settings.wings import FLARE, LABORATORY, NEUROFLAME, PAPERS, TABLES, WINGS
from cape.simulation.run_loop import RunSetup
from cape.site.policy import SitePolicy

PACKAGE = Path(cape.__file__).parent
# Runs words of `cape` one after the other and prints what each said, then what Python says.
DRIVER = """
import contextlib, io, json, sys
import cape, cape.cli, cape.report.consortium_page, cape.report.site_page
from cape.errors import CapeError
if sys.argv[2] == "without-pages":
    cape.report.consortium_page.render = lambda folder: folder / "index.html"
    cape.report.site_page.render_site = lambda folder: folder / "index.html"
said = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    cape.cli.common.STDOUT.file, cape.cli.common.STDERR.file = out, err
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cape.cli.main(words)
    said.append((code, out.getvalue(), err.getvalue()))
refused = {}
for what, action in {
    "datasets": lambda: cape.datasets,
    "docker": lambda: cape.simulate("study", out="o", through="docker"),
    **{name: lambda name=name: cape.load(name) for name in json.loads(sys.argv[3])},
}.items():
    try:
        action()
    except (CapeError, ImportError) as err:
        refused[what] = f"{type(err).__name__} {err}"
loaded = [cape.load(name).name for name in cape.names()]
print(json.dumps([said, refused, loaded, dir(cape), cape.__file__]))
"""
ALL_COMPUTATIONS = tuple(cape.names())
OF_WINGS = {name for wing in WINGS.values() for name in wing.computations}
BUDGET = "budget --subjects 200 --sites 4 --components 5 --epsilon 4 --delta 1e-5"
WORK = [
    "init study/local0 --orientation feature_by_time --out proposed.toml".split(),
    ["validate", "study"],
    BUDGET.split(),
    ["simulate", "study", "--out", "out", "--set", "private=false", "--quiet"],
    ["compspec", "--image", "example.org/coinstac-cape", "--out", "forms"],
    ["--help"],
]
# What needs a wing -> the words that are typed; `finished` was played through docker.
RUN = ["simulate", "study", "--out", "o", "--set", "private=false"]
NEEDS = {
    FLARE: [["flare", "job", "job"], [*RUN, "--through", "nvflare"]],
    LABORATORY: [
        ["synth", "other"],
        [*RUN, "--through", "docker"],
        [*RUN, "--through", "coinstac"],
        ["rerun", "finished", "--out", "again"],
    ],
    NEUROFLAME: [["neuroflame", "."]],
    PAPERS: [["account", "--mu", "1"], [*RUN, "--set", "computation=djica"]],
    TABLES: [["validate", "study", "--set", "computation=capecca"]],
}
# What else is gone with a wing: deleting FLARE's border takes NeuroFLAME's with it.
WITH = {FLARE: {FLARE, NEUROFLAME}}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A consortium that the whole package wrote, and the folder of a run in containers."""
    place = tmp_path_factory.mktemp("prepared")
    words = "--preset paper --site-sizes 4,4,4 --timepoints 40 --networks 2 --quiet"
    assert main(["synth", str(place / "study"), *words.split()]) == 0
    (place / "finished").mkdir()
    setup = RunSetup(
        directory=str(place / "study"),
        through="docker",
        settings={},
        policy=SitePolicy.of_simulation(),
        drops=(),
    )
    setup.write(place / "finished")
    return place


def play(tmp_path: Path, prepared: Path, gone: set[str], *, pages: bool) -> dict[str, object]:
    """Delete the wings `gone` from a copy and let it work; returns what it said."""
    shutil.copytree(PACKAGE, tmp_path / "cape", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    for wing in gone:
        shutil.rmtree(tmp_path / wing.replace(".", "/"))
    commands = [*COMMANDS, "flare"]
    asked = [words for wing in NEEDS if wing in gone for words in NEEDS[wing]]
    helps = [[command, "--help"] for command in commands]
    gone_computations = [name for wing in gone for name in WINGS[wing].computations]
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", DRIVER, json.dumps([*WORK, *helps, *asked]),
         "with-pages" if pages else "without-pages", json.dumps(gone_computations)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said, refused, loaded, shown, where = json.loads(done.stdout.splitlines()[-1])
    assert Path(where).is_relative_to(tmp_path)
    works = dict(zip(map(" ".join, [*WORK, *helps]), said, strict=False))
    return {"works": works, "asked": list(zip(asked, said[len(works) :], strict=True)),
            "refused": refused, "loaded": loaded, "dir": shown}  # fmt: skip


def check(found: dict[str, object], gone: set[str], place: Path, *, pages: bool) -> None:
    for words, (code, out, err) in found["works"].items():
        assert code == 0, (words, out, err)
        assert "Traceback" not in out + err
    for words in ("simulate study", "flare", "account"):
        assert any(known.startswith(words) for known in found["works"])
    assert (place / "out" / "consortium" / "results.json").is_file()
    assert (place / "out" / "consortium" / "index.html").is_file() is pages
    taken = {name for wing in gone for name in WINGS[wing].computations}
    # Two of the papers are built on computations of tables.
    taken |= {"dpdispca", "papermean"} if TABLES in gone else set()
    assert set(found["loaded"]) == set(ALL_COMPUTATIONS) - taken
    written = {path.stem for path in (place / "forms").iterdir()}
    assert written == set(found["loaded"]) - set(WINGS[PAPERS].computations)
    for words, (code, out, err) in found["asked"]:
        line = err.strip()
        assert code == 2, (words, out, err)
        assert line.startswith("CAPE-E020 ")
        assert "\n" not in line
        assert "pip install --force-reinstall coinstac-cape" in line
    refused = found["refused"]
    assert {name for name in refused if name in OF_WINGS} == taken & set(refused)
    assert ("datasets" in refused) == ("docker" in refused and "E020" in refused["docker"])
    assert ("datasets" in refused) == (LABORATORY in gone) == ("datasets" not in found["dir"])
    for what, text in refused.items():
        # With the laboratory, docker is missing or has no image: that is not what is asked here.
        assert "CAPE-E020 " in text or what == "docker", text


@pytest.mark.parametrize("wing", WINGS)
def test_without_a_wing_all_else_works_and_it_says_in_one_line_what_is_missing(
    wing, tmp_path, prepared
) -> None:
    found = play(tmp_path, prepared, {wing}, pages=False)
    check(found, {wing}, tmp_path, pages=False)
    for other in WITH.get(wing, {wing}) - {wing}:
        out = found["works"][f"{WINGS[other].commands[0]} --help"][1]
        assert "Not installed here" in out


def test_without_any_wing_the_product_works_pages_included(tmp_path, prepared) -> None:
    found = play(tmp_path, prepared, set(WINGS), pages=True)
    check(found, set(WINGS), tmp_path, pages=True)
    assert found["loaded"] == sorted(set(ALL_COMPUTATIONS) - OF_WINGS)


def test_the_whole_package_lacks_nothing(tmp_path, prepared) -> None:
    """A control: what is refused above is refused because of the wing."""
    found = play(tmp_path, prepared, set(), pages=False)
    check(found, set(), tmp_path, pages=False)
    assert LEFT_OUT == {}


def test_the_table_of_wings_names_what_their_folders_hold() -> None:
    for wing, folder in ((TABLES, "computations/tables"), (PAPERS, "papers/computations")):
        files = {path.stem for path in (PACKAGE / folder).glob("[!_]*.py")}
        assert set(WINGS[wing].computations) == files
    assert {name for wing in WINGS.values() for name in wing.commands} < {*COMMANDS, "flare"}


def test_the_image_leaves_out_papers_and_laboratory_and_pages_name_every_wing() -> None:
    root = PACKAGE.parent
    (line,) = re.findall(r'^ARG LEFT_OUT="(.*)"$', (root / "Dockerfile").read_text(), re.M)
    assert {f"cape.{folder}" for folder in line.split()} == {PAPERS, LABORATORY}
    for page in ("docs/install.md", "docs/architecture.md"):
        text = (root / page).read_text(encoding="utf-8")
        assert all(f"`{wing.replace('.', '/')}`" in text for wing in WINGS), page
