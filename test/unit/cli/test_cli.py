"""The command `cape`: what it prints, its exit codes, and that it never shows a traceback.

Belongs to `cape/cli/__init__.py`.
"""

import io
import json
import math
import os
import re
import subprocess
import sys
import tomllib
import typing
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console

from cape import cli
from cape.cli import common, ending, privacy_check
from cape.errors import (
    CapeError,
    ConfigError,
    ConsortiumError,
    DataError,
    PrivacyBudgetError,
    StateLostError,
)
from cape.privacy.accounting import gdp_epsilon
from cape.privacy.cost import Cost, Event, total_cost
from cape.privacy.ledger import chain_head, split_mu, write_entries
from cape.privacy.mechanisms import plan_event
from cape.report import files
from cape.report.consortium import components_of, results_of
from cape.report.maps import Component
from cape.settings.config import VERSION
from cape.site.files import WHY
from support import report_example as example

# -- errors and exit codes ------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A progress line as the simulator makes it."""

    phase: str = "iterate"
    round: int = 10
    rounds: int = 40
    exchange: int = 16
    exchanges: int = 47
    mu: float = 0.197
    mu_budget: float = 0.268
    epsilon: float = 0.72
    step: float = 0.041
    stability: float = 0.62
    seconds: float = 0.5
    sites: int = 4
    bytes: int = 2000
    epsilon_total: float = 8.0


class FakeSimulator:
    """Stands in for the simulator: records how it was called, then writes results or raises."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.error: BaseException | None = None
        self.lines = [Line()]
        made = example.outcome(rank=2)
        self.components = components_of(made)
        self.results: Any = results_of(made)

    def __call__(self, directory: Path, **given: Any) -> Path:
        self.calls.append({"directory": directory, **given})
        if self.error:
            raise self.error
        for line in self.lines:
            given["on_progress"](line)
        folder: Path = given["out"] / "consortium"
        folder.mkdir(parents=True)
        files.write_json(folder / "results.json", self.results)
        files.write_rows(folder / "components.tsv", Component, self.components)
        (folder / "index.html").write_text("<html>")
        return folder


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> FakeSimulator:
    fake = FakeSimulator()
    monkeypatch.setattr("cape.python.api.simulate", fake)
    monkeypatch.setattr("cape.simulation.simulate.refused_by_policies", lambda *_: ())
    return fake


def run(tmp_path: Path, *more: str) -> int:
    return cli.main(["simulate", str(tmp_path), "--out", str(tmp_path / "out"), *more])


ERRORS = [
    (DataError("E138", site="local1", detail="sub-07: shape (3, 3, 3)"), 1),
    (ConsortiumError("E124", field="mask", sites="local0, local1"), 1),
    (StateLostError("E210", site="local1", what="the journal"), 1),
    (ConfigError("E010", setting="n_component", hint=""), 2),
    (CapeError("E153", site="local1"), 3),
    (PrivacyBudgetError("E154", site="local1"), 3),
    (PrivacyBudgetError("E231", site="local1", problem="epsilon is too large"), 3),
    (
        PrivacyBudgetError(
            "E230", what="x", needed="2", remaining="1", budget="1", do="raise epsilon."
        ),
        4,
    ),
    (FileNotFoundError("settings.toml"), 1),
    (ZeroDivisionError("subject sub-07 has value 12.34"), 70),
    (KeyboardInterrupt(), 130),
]


@pytest.mark.parametrize(("error", "code"), ERRORS, ids=repr)
def test_every_kind_of_error_has_its_exit_code_and_no_traceback(
    error: BaseException, code: int, tmp_path, simulator, capsys
) -> None:
    simulator.error = error
    assert run(tmp_path) == code
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err + shown.out
    if isinstance(error, CapeError):
        assert error.public in shown.err
        assert error.detail in shown.err


def test_every_error_of_the_system_is_told_in_words_with_its_file(tmp_path, simulator, capsys):
    """People read "[Errno 28] No space left on device", in every command, and no way out."""
    for number, words in {**WHY, 99999: "Unknown error 99999"}.items():
        simulator.error = OSError(number, os.strerror(number), str(tmp_path / "ledger.jsonl"))
        assert run(tmp_path) == 1
        told = capsys.readouterr().err
        assert f"CAPE-E021 the system refuses a file: {words}." in told
        assert f"{tmp_path / 'ledger.jsonl'}\n" in told
        assert "Errno" not in told


def test_an_unknown_error_shows_no_text_of_its_own_unless_asked(tmp_path, simulator, capsys):
    """The text of a foreign exception may hold data; --verbose is for the person at the site."""
    simulator.error = ZeroDivisionError("subject sub-07 has value 12.34")
    run(tmp_path)
    quiet = capsys.readouterr().err
    assert "12.34" not in quiet
    assert "CAPE-E000" in quiet
    assert "--verbose" in quiet
    assert run(tmp_path, "--verbose") == 70
    assert "Traceback" in capsys.readouterr().err


def test_errors_are_json_lines_for_machines(tmp_path, simulator, capsys) -> None:
    simulator.error = DataError("E138", site="local1", detail="sub-07")
    assert run(tmp_path, "--json") == 1
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["event"] == "error"
    assert last["text"].startswith("CAPE-E138")
    assert last["detail"] == "sub-07"


def test_a_run_of_noise_is_refused_with_what_to_type(tmp_path, simulator, capsys) -> None:
    """It said "or set accept_low_quality", which is no option of a command line."""
    for do in ("or set accept_low_quality.", "take 90 people, or accept_low_quality = true."):
        simulator.error = ConfigError("E150", problem="mostly noise", do=do)
        assert run(tmp_path) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert said.endswith("Type: --set accept_low_quality=true")
    simulator.error = ConfigError("E150", problem="nobody", do="ask for another group.")
    run(tmp_path)
    assert "Type:" not in capsys.readouterr().err


def test_no_budget_is_an_error_that_names_its_option(tmp_path, typed) -> None:
    (tmp_path / "s" / "local0").mkdir(parents=True)
    (tmp_path / "s" / "settings.toml").write_text("")
    words = ["simulate", str(tmp_path / "s"), "--out", str(tmp_path / "o")]
    assert typed(*words, code=2).err.splitlines() == [
        "CAPE-E013 setting 'epsilon' is required; the owner chooses it. Type: --epsilon VALUE"
    ]
    said = json.loads(typed(*words, "--epsilon", "8", "--delta", "2", "--json", code=2).out)
    assert said["type"] == "--delta VALUE"
    # What delta means stands in the help, not in each error.
    assert (
        said["text"] == "CAPE-E011 delta=2.0: allowed a number, 1e-15 to 0.1; correct the setting."
    )


def test_wrong_usage_is_a_line_for_machines_too(typed) -> None:
    assert json.loads(typed("synth", "--json", code=2).out)["event"] == "error"


# -- log, verbosity, colours, completion ----------------------------------------------------------


def test_a_log_has_all_that_was_printed_and_is_for_nobody_else(tmp_path, simulator, capsys) -> None:
    log = tmp_path / "log.txt"
    assert run(tmp_path, "--log-file", str(log)) == 0
    simulator.error = DataError("E138", site="local1", detail="sub-07")
    assert run(tmp_path, f"--log-file={log}") == 1
    shown = capsys.readouterr()
    text = log.read_text(encoding="utf-8")
    for line in (shown.out + shown.err).splitlines():
        assert line in text
    assert f"cape {VERSION}, Python" in text
    assert re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} .*\n)+", text)
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_log_that_cannot_be_written_ends_the_command_before_it_begins(
    tmp_path, simulator, capsys
) -> None:
    assert run(tmp_path, "--log-file", str(tmp_path / "no" / "log.txt")) == 2
    assert run(tmp_path, "--log-file") == 2
    assert "--log-file" in capsys.readouterr().err
    assert not simulator.calls


def test_verbose_says_versions_time_and_exit_code(tmp_path, simulator, capsys) -> None:
    assert run(tmp_path, "-v") == 0
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.startswith(f"cape {VERSION}, Python 3.")
    assert re.fullmatch(r"exit code 0, \d+\.\d s", last)


@pytest.mark.parametrize(("variable", "coloured"), [("FORCE_COLOR", True), ("NO_COLOR", False)])
def test_colours_can_be_turned_off(tmp_path, variable: str, coloured: bool) -> None:
    words = [sys.executable, "-m", "cape", "rerun", str(tmp_path), "--out", "again"]
    environment = {"FORCE_COLOR": "1", variable: "1", "TERM": "xterm-256color"}
    done = subprocess.run(
        words, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert "CAPE-E" in done.stderr
    assert bool(re.search(r"\x1b\[[0-9;]*[349][0-9]m", done.stderr)) is coloured


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete(shell: str, typed) -> None:
    assert f"complete_{shell}" in typed("completion", shell).out


@pytest.mark.parametrize(
    ("line", "offered"),
    [("cape sim", "simulate"), ("cape simulate --thr", "--through"),
     ("cape simulate --through mem", "memory")],
)  # fmt: skip
def test_commands_options_and_choices_are_completed(line: str, offered: str) -> None:
    environment = {"_CAPE_COMPLETE": "complete_bash", "COMP_WORDS": line}
    environment["COMP_CWORD"] = str(len(line.split()) - 1)
    done = subprocess.run(
        [sys.executable, "-m", "cape"], env=os.environ | environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == [offered]


@pytest.mark.parametrize(
    "arguments",
    [
        ["unknown"],
        ["simulate"],
        ["simulate", "nowhere", "--out", "x"],
        ["simulate", ".", "--out", "x", "--through", "pigeons"],
        ["simulate", ".", "--out", "x", "--set", "n_components"],
        ["simulate", ".", "--out", "x", "--seed", "many"],
        ["synth"],
        ["synth", "x", "--site-sizes", "a,b"],
        ["budget"],
        ["budget", "--check", "nowhere.json"],
        ["report", "nowhere"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], simulator) -> None:
    assert cli.main(arguments) == 2
    assert not simulator.calls


def test_version_and_help(typed) -> None:
    assert typed("--version").out == f"cape {VERSION}\n"
    for command in (["--help"], ["simulate", "--help"]):
        typed(*command)
    # What `cape ledger` itself takes stood nowhere.
    said = typed("ledger", "--help").out
    assert all(word in said for word in ("--file", "--policy", "--json", "close", "forgive"))


def test_every_parameter_of_every_command_says_what_it_is() -> None:
    """The words stand in options.toml: a parameter that it lacks would show a bare name."""

    # Of the annotations: older releases of typer lose the words of arguments under today's click.
    def bare(app: typer.Typer) -> Iterator[str]:
        for one in app.registered_commands:
            for name, hint in typing.get_type_hints(one.callback, include_extras=True).items():
                said = [getattr(info, "help", "") for info in getattr(hint, "__metadata__", ())]
                if name != "return" and not any(said):
                    yield f"{one.callback.__name__} {name}"
        for group in app.registered_groups:
            yield from bare(group.typer_instance)

    assert len(cli.app.registered_commands) > 10
    assert list(bare(cli.app)) == []


def test_help_imports_no_numerical_library() -> None:
    code = (
        "import sys; from cape.cli import main; main(['--help']);"
        "sys.exit(bool({'scipy', 'nibabel', 'matplotlib', 'cryptography'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0


# -- simulate -------------------------------------------------------------------------------------


def test_simulate_passes_on_what_was_typed(tmp_path, simulator) -> None:
    code = run(
        tmp_path, "--through", "process", "--epsilon", "8", "--delta", "1e-5", "--seed", "3",
        "--set", "n_components=10", "--set", "score = tanh",
    )  # fmt: skip
    assert code == 0
    (call,) = simulator.calls
    assert call["directory"] == tmp_path
    assert (call["through"], call["seed"]) == ("process", 3)
    assert call["settings"] == {
        "epsilon": 8.0,
        "delta": 1e-5,
        "n_components": "10",
        "score": "tanh",
    }


def test_what_was_not_typed_is_left_to_the_settings_of_the_folder(tmp_path, simulator) -> None:
    assert run(tmp_path) == 0
    (call,) = simulator.calls
    assert call["settings"] == {}
    assert call["seed"] is None
    assert call["through"] == "memory"


def test_a_simulation_takes_a_named_file_of_settings_in_place_of_the_folders(tmp_path, typed):
    """cmp.toml of init, validate and budget could not be rehearsed: "No such option"."""
    for site in "abc":
        (tmp_path / "study" / site).mkdir(parents=True)
    (tmp_path / "study" / "settings.toml").write_text("n_components = 3\nbids_filter = 'task-x'\n")
    named = tmp_path / "cmp.toml"
    named.write_text('computation = "djica"\nn_components = 1000\nepsilon = 8.0\ndelta = 1e-5\n')
    words = ("simulate", str(tmp_path / "study"), "--out", str(tmp_path / "out"))
    err = typed(*words, "--settings", str(named), code=2).err
    assert "n_components=1000" in err
    assert "n_components=3" not in err
    typed(*words, "--settings", str(tmp_path / "none.toml"), code=2)


def test_a_line_per_round_says_where_the_run_is(tmp_path, simulator, capsys, monkeypatch) -> None:
    """In plain words: it read "16/47 iterate 10/40 | stability 0.62 | step 0.041 | mu ..."."""
    monkeypatch.setattr("cape.cli.progress.LINE_SECONDS", 0.0)
    run(tmp_path)
    printed = capsys.readouterr()
    rest = printed.out.splitlines()
    said = "round 10 of 40, epsilon 0.72 of 8, about 65 s left"
    assert said in printed.err.splitlines()
    assert [Path(line).name for line in rest] == ["index.html", "results.json"]


def test_quiet_prints_the_result_only(tmp_path, simulator, capsys) -> None:
    run(tmp_path, "--quiet")
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0].endswith("index.html")
    assert "confirmed" not in printed.err


def test_the_end_says_what_came_out_and_what_to_open(tmp_path, simulator, capsys) -> None:
    """It said "converged | epsilon 8 | out/consortium": no sentence, and no word on the maps."""
    run(tmp_path)
    told = capsys.readouterr().err
    assert "2 of 2 components are confirmed.\n" in told
    assert "  confirmed    2   C01, C02\n" in told
    assert "  1024 people, 3 sites; epsilon 1.0000 of 1.0000 spent (delta 1e-05)\n" in told


def test_commands_to_type_hold_for_a_folder_with_a_space(tmp_path, simulator, monkeypatch, capsys):
    """Typed as they were printed, they named two folders that are not there."""
    told = tmp_path / "my lab"
    small = ("--site-sizes", "2,2", "--timepoints", "60", "--networks", "2")
    assert cli.main(["synth", str(told), *small]) == 0
    assert f"next: cape simulate '{told}' --out out" in capsys.readouterr().out
    (told / "settings.toml").unlink()
    assert cli.main(["init", str(told)]) == 0
    assert f"then: cape validate '{told}'" in capsys.readouterr().out
    (told / "settings.toml").unlink()
    cli.main(["validate", str(told)])
    assert f"cape init '{told}'" in capsys.readouterr().err
    folder = simulator(told, out=told, on_progress=lambda _: None)
    shown = Console(file=io.StringIO(), force_terminal=True, soft_wrap=True, no_color=True)
    monkeypatch.setattr(ending, "STDOUT", shown)
    ending.print_results(folder, as_json=False, quiet=False)
    assert f"budget --check '{folder / 'privacy.json'}'" in shown.file.getvalue()


def test_where_nothing_lies_nobody_is_asked_to_name_it(tmp_path, typed) -> None:
    """It proposed a manifest.csv "of all files", which had a header and no row."""
    assert "--write" not in typed("people", str(tmp_path), code=2).out


def test_in_a_terminal_the_end_names_the_page_the_maps_and_the_check(
    tmp_path, simulator, monkeypatch
) -> None:
    folder = simulator(tmp_path, out=tmp_path, on_progress=lambda _: None)
    (folder / "group_maps.nii.gz").write_bytes(b"")
    shown = Console(file=io.StringIO(), force_terminal=True, soft_wrap=True, no_color=True)
    monkeypatch.setattr(ending, "STDOUT", shown)
    ending.print_results(folder, as_json=False, quiet=False)
    rows = dict(line.split(maxsplit=1) for line in shown.file.getvalue().splitlines()[-3:])
    assert rows["look"] == str(folder / "index.html")
    assert rows["maps"] == str(folder / "group_maps.nii.gz")
    assert rows["check"] == f"cape budget --check {folder / 'privacy.json'}"


def test_maps_stand_by_what_is_claimed_of_them_and_lines_fit_80_columns(
    tmp_path, simulator, capsys
) -> None:
    one = simulator.components[0]
    one = replace(one, verdict=None, found_again="yes", label="reward")
    rows = [replace(one, name=f"C{k:02d}") for k in range(3, 13)]
    rows.append(replace(one, name="C01", found_again="uncertain"))
    rows.append(replace(one, name="C02", found_again="likely, sharp", mirror_of="C13"))
    rows.append(replace(one, name="C13", found_again="likely", mirror_of="C02"))  # a pair is one
    simulator.components = tuple(rows)
    simulator.results = example.spatial_results(
        "networks", "brain", z=9.0, yes=10, likely=1, n_components=12
    )
    run(tmp_path)
    told = capsys.readouterr().err.splitlines()
    start = told.index("10 of 12 maps are networks, 1 more may be: about 11 are expected to be.")
    rows = [line for line in told[start:] if line[2:3].isalpha() and line[13:16].strip().isdigit()]
    assert [line.split()[:2] for line in rows] == [
        ["yes", "10"], ["likely", "1"], ["uncertain", "1"]
    ]  # fmt: skip
    assert "C02=C13" in rows[1]
    assert max(map(len, told[start:])) <= 80


def test_a_run_of_time_courses_that_confirmed_nothing_says_what_next(tmp_path, simulator, capsys):
    made = example.outcome(rank=2, status="unconfirmed")
    simulator.results, simulator.components = results_of(made), components_of(made)
    run(tmp_path)
    told = " ".join(capsys.readouterr().err.split())
    assert "0 of 2 components are confirmed. " in told
    assert "cape validate at every site" in told or "ask cape budget" in told


@pytest.mark.parametrize("there", [True, False])
def test_open_opens_the_page_and_says_so_where_it_cannot(
    there: bool, tmp_path, simulator,
    monkeypatch, capsys,
) -> None:  # fmt: skip
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda uri: (opened.append(uri), there)[1])
    assert run(tmp_path, "--open") == 0
    assert opened == [(tmp_path / "out/consortium/index.html").as_uri()]
    assert ("no browser" in capsys.readouterr().err) != there


def test_json_lines_end_with_results_and_paths(tmp_path, simulator, capsys) -> None:
    simulator.lines = [Line(stability=math.nan)]
    (tmp_path / "local0").mkdir()
    run(tmp_path, "--json")
    warning, progress, result = map(json.loads, capsys.readouterr().out.splitlines())
    assert "cape init" in warning["text"]  # there is no settings.toml
    assert progress["event"] == "progress"
    assert progress["stability"] is None
    assert progress["phase"] == "iterate"
    assert result["event"] == "result"
    assert result["status"] == "converged"
    assert Path(result["paths"]["index.html"]).is_file()
    assert set(progress) >= set(Line.__dataclass_fields__)


def test_a_run_that_is_not_private_is_called_so(tmp_path, simulator, capsys) -> None:
    made = example.outcome(rank=2, private=False)
    simulator.results, simulator.components = results_of(made), components_of(made)
    simulator.lines = [Line(mu=0.0, mu_budget=math.inf, epsilon=math.inf)]
    run(tmp_path)
    printed = capsys.readouterr()
    assert "NOT PRIVATE" in printed.err
    assert "epsilon" not in printed.err.partition("NOT PRIVATE")[0].splitlines()[-2]
    (tmp_path / "again").mkdir()
    run(tmp_path / "again", "--quiet")
    assert "NOT PRIVATE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.4, "3 s"), (99.0, "99 s"), (150.0, "2 min"), (7200.0, "2.0 h")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert common.duration(seconds) == text


# -- synth ----------------------------------------------------------------------------------------


def test_synth_writes_a_consortium_and_says_what_next(tmp_path, typed) -> None:
    out = tmp_path / "study"
    given = ["--preset", "paper", "--site-sizes", "2,3", "--timepoints", "60", "--networks", "4"]
    assert "subjects per site 2, 3" in typed("synth", str(out), *given).out
    assert len(list((out / "local1").glob("sub-*"))) == 3
    assert tomllib.loads((out / "settings.toml").read_text())["n_components"] == 4
    assert cli.main(["synth", str(out)]) == 2, "the folder is not empty"


# -- budget ----------------------------------------------------------------------------------------

ASKED = ["budget", "--subjects", "1024", "--sites", "4", "--components", "20"]
TEMPORAL = [*ASKED, "--set", "computation=capedjica"]
OF_SQUARES = ("--set", "feature_space=matrix", "--set", "image_shape=30,30", "--set", "basis=dct")


def planned(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert cli.main([*TEMPORAL, "--json", *more]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return document


def test_budget_gives_the_figures_of_the_plan(capsys) -> None:
    """The worked example: 1024 subjects at four sites, one colluder, epsilon 1."""
    plan = planned(capsys, "--epsilon", "1")
    assert plan["mu"] == pytest.approx(0.2680511, rel=1e-5)
    assert plan["epsilon"]["aggregator"] == pytest.approx(1.0, abs=1e-6)
    assert plan["epsilon"]["aggregator"] <= 1.0
    assert plan["epsilon"]["outsider"] == pytest.approx(0.854049, abs=1e-5)
    assert (plan["colluders"], plan["shares"], plan["n_basis"]) == (1, 3, 100)
    assert [(s["phase"], s["size"]) for s in plan["stages"]] == [
        ("pca", 5050),
        ("whitening", 210),
        ("iterate", 190),
    ]
    assert sum(s["mu"] ** 2 for s in plan["stages"]) == pytest.approx(plan["mu"] ** 2)
    assert plan["verdict"]["usable"]
    assert plan["verdict"]["g"] == pytest.approx(237.7, abs=0.1)
    assert plan["verdict"]["smallest_epsilon"] == pytest.approx(0.973, abs=0.005)
    assert 105_000 < plan["bytes_per_site"] < 150_000


def test_budget_says_in_words_what_to_expect(capsys) -> None:
    assert cli.main([*TEMPORAL, "--epsilon", "1"]) == 0
    assert "Will it work?  No: on images of brains temporal ICA" in capsys.readouterr().out
    assert cli.main([*TEMPORAL, "--epsilon", "1", *OF_SQUARES]) == 0
    good = capsys.readouterr().out
    assert "Will it work?  Yes: the effective size is 238, and 20 components need 232." in good
    assert good.count("On synthetic data") == 1
    assert cli.main([*TEMPORAL, "--epsilon", "0.5", *OF_SQUARES]) == 0
    assert "Will it work?  Perhaps: the effective size is 126" in capsys.readouterr().out
    assert cli.main([*TEMPORAL, "--epsilon", "0.2", *OF_SQUARES]) == 0
    bad = capsys.readouterr().out
    assert "Will it work?  No: the effective size is 54" in bad
    assert "the maps would mostly show noise" in bad


def test_budget_tells_what_one_change_of_the_plan_gives(typed) -> None:
    images = ["budget", "--subjects", "256", "--sites", "4", "--epsilon", "2"]
    said = typed(*images).out
    rows = said.partition("Around this plan\n")[2].splitlines()[1:5]
    words = ("as asked", "twice the people", "half the epsilon", "10 components")
    assert [row[:16].strip() for row in rows] == list(words)
    last = ["12 of 15", "15 of 18", "7 of 12", "-"]
    assert all(row.endswith(f"  {networks}") for row, networks in zip(rows, last, strict=True))
    assert all(len(row) <= 80 for row in rows)
    # Nothing is around a plan without noise.
    assert "Around" not in typed(*images, "--set", "private=false").out


def test_budget_judges_by_the_policy_that_is_named(typed, tmp_path) -> None:
    """Its own policy allowed the run, and there was no way to say so."""
    run = ["budget", "--subjects", "256", "--sites", "4", "--epsilon", "9"]
    assert "sites without a policy of their own would refuse the run" in typed(*run).out
    own = tmp_path / "policy.toml"
    for most, refuses in ((10, False), (8, True)):
        own.write_text(f"max_run = [[{most}, 1e-5]]\nmax_total = [[{most}, 1e-5]]\n")
        told = typed(*run, "--policy", str(own)).out
        assert "without a policy of their own" not in told
        assert ("a site with this policy would refuse the run" in told) is refuses


def test_what_would_change_an_answer_can_be_typed(typed) -> None:
    """paperdjica was told to leave out choices that are its own defaults: E012 when typed."""
    size = ["budget", "--subjects", "1024", "--sites", "4", "--components", "20", "--epsilon", "1"]
    said = typed(*size, "--set", "computation=paperdjica", *OF_SQUARES).out
    assert "without solver" not in said
    assert "What would change it, each by itself:\n  computation: capedjica\n" in said
    assert "Will it work?  Yes" in typed(*size, "--set", "computation=capedjica", *OF_SQUARES).out


def test_of_an_atlas_the_table_of_voxels_promises_nothing(typed) -> None:
    """At G 75 it promised 9 of 12 networks, and an atlas gave 6."""
    size = ["budget", "--subjects", "256", "--sites", "4", "--epsilon", "2"]
    said = typed(*size, "--set", "computation=capegica", "--set", "feature_space=atlas").out
    assert "Will it work?  Yes: the effective size is 111, and spatial components need 90." in said
    assert "maps are expected to be networks" not in said
    assert "12 of 15" not in said


def test_more_assumed_colluders_cost_quality_not_epsilon(capsys) -> None:
    one = planned(capsys, "--epsilon", "1", "--colluders", "1")
    two = planned(capsys, "--epsilon", "1", "--colluders", "2")
    assert two["mu"] == pytest.approx(one["mu"], rel=1e-6)
    assert two["verdict"]["g"] == pytest.approx(one["verdict"]["g"] * math.sqrt(2 / 3), rel=1e-5)


def test_a_plan_without_noise_promises_nothing(capsys, typed) -> None:
    plan = planned(capsys, "--set", "private=false")
    assert plan["mu"] is None
    assert plan["epsilon"] is None
    assert "No noise: this run gives no privacy." in typed(*TEMPORAL, "--set", "private=false").out


@pytest.mark.long
def test_budget_says_how_long_a_run_waits_by_its_exchanges(typed) -> None:
    """With drop-outs they are three times its releases, and NeuroFLAME has none."""
    said = " ".join(typed(*TEMPORAL, "--epsilon", "1").out.split())
    assert "Waiting 46 exchanges of 4 sites: 1 s on one computer, 5 s on COINSTAC, 5 s on" in said
    assert "NeuroFLAME 92 s of the 60 min after which it ends a run: beside reading" in said
    assert (
        "of the 60 min after which it ends a run: refused"
        in typed(*TEMPORAL, "--epsilon", "1", "--set", "n_rounds=2000").out
    )
    said = " ".join(typed(*TEMPORAL, "--epsilon", "1", "--set", "aggregation=secagg").out.split())
    assert "Waiting 134 exchanges of 4 sites: 3 s on one computer, 15 s on COINSTAC" in said
    assert "NeuroFLAME" not in said
    # It said the same of 3 sites and of 100.
    many = ["budget", "--subjects", "5024", "--sites", "100", "--components", "20"]
    said = " ".join(typed(*many, "--epsilon", "1", "--set", "computation=capedjica").out.split())
    assert "Waiting 46 exchanges of 100 sites: 14 s on one computer, 72 s on COINSTAC" in said


@pytest.mark.parametrize("sites", ["20", "21"])
def test_budget_names_the_key_of_a_policy_that_every_site_must_raise(typed, sites: str) -> None:
    words = ["budget", "--subjects", "1024", "--sites", sites, "--epsilon", "8"]
    assert ("max_sites=20, the run has 21" in typed(*words).out) == (sites == "21")


def test_the_number_of_sites_of_set_counts_before_that_of_the_file(tmp_path, typed) -> None:
    """It was refused as if another site were missing."""
    file = tmp_path / "settings.toml"
    file.write_text("n_sites = 3\nepsilon = 2.0\n")
    words = ["budget", "--settings", str(file), "--subjects", "1200", "--set", "n_sites=4"]
    assert "1200 subjects at 4 sites" in typed(*words).out


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ([], "setting 'epsilon' is required"),
        (["--epsilon", "1", "--delta", "0.01"], "less than 1/1024"),
        (["--epsilon", "1", "--set", "n_component=3"], "did you mean 'n_components'?"),
        (["--epsilon", "-1"], "epsilon=-1"),
        # "did you mean 'orientation'?" was said of what `cape simulate` accepts.
        (
            ["--set", "computation=capecca"],
            "computation=capecca: allowed capedjica, capedualreg, capegica, paperdjica; only cap",
        ),
        (["--set", "computation=capeica"], "did you mean 'capegica'?"),
        # As in a run.  Colluders past the sites were a ZeroDivisionError, two sites "Yes".
        (["--epsilon", "1", "--colluders", "4"], "assumed_colluders=4 of 4 sites; allowed 0 to 3"),
        (["--epsilon", "1", "--colluders", "5"], "assumed_colluders=5 of 4 sites; allowed 0 to 3"),
        (
            ["--epsilon", "1", "--sites", "2", "--set", "min_sites=3"],
            "CAPE-E152 2 sites joined, but min_sites is 3; wait for all sites, or the owner sets "
            "min_sites = 2 (--set min_sites=2)",
        ),
        (
            ["--epsilon", "1", "--set", "aggregation=secagg", "--set", "min_survivors=5"],
            "min_survivors=5, assumed_colluders=1 of 4 sites",
        ),
    ],
    ids=[
        "no epsilon", "delta", "unknown", "negative", "not planned", "no computation",
        "all collude", "more collude than are", "two sites", "survivors",
    ],
)  # fmt: skip
def test_budget_refuses_impossible_settings(more: list[str], text: str, typed) -> None:
    assert text in typed(*ASKED, *more, code=2).err


# -- budget --check -------------------------------------------------------------------------------

DELTA = 1e-5


def events(epsilon_mu: float = 0.5, n: int = 4) -> list[Event]:
    return [
        plan_event(
            phase="iterate",
            round=k,
            field="skew",
            shape="ball",
            size=10,
            clip=0.35,
            mu=mu,
            shares=3,
        )
        for k, mu in enumerate(split_mu(epsilon_mu, [1.0 / n] * n), 1)
    ]


def statement(released: list[Event]) -> dict[str, Any]:
    """Return a privacy.json of four sites, one assumed colluder."""
    costs = total_cost(event.cost for event in released).by_viewer(
        noise_shares=3, n_sites=4, noise="correlated"
    )
    views = {key: cost.epsilon(DELTA) for key, cost in costs.items()}
    counts = dict.fromkeys(("zcdp_rho", "n_sites", "n_subjects"), 4)
    figures = dict.fromkeys(
        ("clip", "sensitivity", "noise_std_share", "noise_std_mean", "mu", "mu_so_far",
         "epsilon_so_far"), 1.0,
    )  # fmt: skip
    return {
        "schema": "cape-privacy-1", "guarantee": "dp", "private": True,
        "epsilon": views["aggregator"], "epsilon_planned": None, "delta": DELTA, "mu": None,
        "lattice_slack": {}, **counts, "assumed_colluders": 1, "min_survivors": 4,
        "survivors": [], "subjects_per_site": {}, "noise": "correlated", "roster_fingerprint": "",
        "views": [
            {"key": key, "who": "", "sees": "", "mu": None, "epsilon": epsilon, "headline": False}
            for key, epsilon in views.items()
        ],
        "if_more_collude": [], "budget": {"epsilon_spent": views["aggregator"]},
        "assumptions": [], "not_covered": [], "warnings": [],
        "ledger": {"head": chain_head(tuple(released)), "entries": list(write_entries(released))},
        "events": [
            {
                "seq": k, "phase": event.phase, "round": event.round, "field": event.field,
                "shape": event.shape, "size": event.size, "log2_gamma": event.log2_gamma,
                "clip_int": event.clip_int, "delta_int": event.delta_int,
                "s2": str(event.variance), "shares": event.shares, "mu2": str(event.cost),
                "digest": "", "part": event.part, **figures,
            }
            for k, event in enumerate(released, 1)
        ],
    }  # fmt: skip


def save(tmp_path: Path, document: dict[str, Any], name: str = "privacy.json") -> Path:
    path = tmp_path / name
    path.write_text(json.dumps(document))
    return path


def test_an_honest_statement_passes_the_check(tmp_path, typed) -> None:
    path = save(tmp_path, statement(events()))
    assert typed("budget", "--check", str(path)).out.startswith("ok: epsilon 1.99309 recomputed")
    assert privacy_check.check_file(path).epsilon == pytest.approx(1.99309, rel=1e-5)


def test_a_plan_that_was_not_used_up_may_claim_more(tmp_path) -> None:
    document = statement(events())
    document["epsilon"] += 1.0
    assert privacy_check.check_file(save(tmp_path, document)).findings == ()


def test_halves_of_a_statement_are_added_up_for_the_dearer_one(tmp_path) -> None:
    whole = privacy_check.check_file(save(tmp_path, statement(events()))).cost
    document = statement([replace(one, part="AB"[k % 2]) for k, one in enumerate(events())])
    costs = [Cost.parse(event["mu2"]) for event in document["events"]]
    dearer = max(sum(one.mu2 for one in costs[k::2]) for k in (0, 1))
    found = privacy_check.check_file(save(tmp_path, document))
    assert 0 <= found.cost.mu2 - dearer < 2.0**-200 < whole.mu2 - dearer
    assert found.findings == ()  # who claims more than the releases give promises too little only


LIES = {
    "epsilon too small": lambda d: d.update(epsilon=d["epsilon"] * 0.999),
    "epsilon missing": lambda d: d.update(epsilon=None),
    "spent too small": lambda d: d["budget"].update(epsilon_spent=0.1),
    "a viewer too small": lambda d: d["views"][0].update(epsilon=0.1),
    "mu2 of a release": lambda d: d["events"][0].update(mu2="1/1000000"),
    "sensitivity halved": lambda d: d["events"][0].update(delta_int=d["events"][0]["clip_int"]),
    "noise removed": lambda d: d["events"][0].update(s2="0"),
    "too few shares assumed": lambda d: d.update(assumed_colluders=2),
    "half of a release": lambda d: d["events"][0].update(part="A"),
    "half of a release and of its charge": lambda d: [
        row.update(part="A") for row in (d["events"][0], d["ledger"]["entries"][0])
    ],
    "a release twice": lambda d: d["events"].append(d["events"][0]),
}


@pytest.mark.parametrize("name", LIES)
def test_a_false_claim_is_found_and_is_exit_code_1(name: str, tmp_path, typed) -> None:
    document = statement(events())
    LIES[name](document)
    assert "WRONG" in typed("budget", "--check", str(save(tmp_path, document)), code=1).out


def test_more_noise_than_stated_elsewhere_is_judged_by_the_integers(tmp_path) -> None:
    """mu2 must be that of the integers, in both directions."""
    document = statement(events())
    document["events"][0]["s2"] = str(int(document["events"][0]["s2"]) * 2)
    assert any(
        "mu2" in text for text in privacy_check.check_file(save(tmp_path, document)).findings
    )


def test_the_total_of_several_runs_is_at_the_smallest_delta_and_says_so(tmp_path, typed) -> None:
    # At the largest delta it was 11.71 for a total of 13.09, and named no delta.
    generous = statement(events())
    generous["delta"] = 1e-4
    paths = [save(tmp_path, document, f"{i}.json")
             for i, document in enumerate((statement(events()), generous))]  # fmt: skip
    arguments = [part for path in paths for part in ("--check", str(path))]
    result = json.loads(typed("budget", *arguments, "--json").out)
    assert result["delta_together"] == DELTA
    expected = gdp_epsilon(mu=0.5 * math.sqrt(2.0), delta=DELTA)
    assert result["epsilon_together"] == pytest.approx(expected, rel=1e-6)
    assert f"epsilon {expected:.6g} at delta 1e-05" in typed("budget", *arguments).out


def test_one_run_given_twice_is_counted_once_and_told(tmp_path, typed) -> None:
    one = statement(events()) | {"roster_fingerprint": "ab"}
    other = statement(events(n=2)) | {"roster_fingerprint": "cd"}
    longer = statement(events(n=5)) | {"roster_fingerprint": "ab"}  # no copy, whatever it says
    a, b, c, again = (
        save(tmp_path, d, f"{i}.json") for i, d in enumerate((one, other, longer, one))
    )
    arguments = [part for path in (a, b, a, again) for part in ("--check", str(path))]
    result = json.loads(typed("budget", *arguments, "--json").out)
    assert [file["same_run_as"] for file in result["files"]] == [None, None, str(a), str(a)]
    expected = gdp_epsilon(mu=0.5 * math.sqrt(2.0), delta=DELTA)
    assert result["epsilon_together"] == pytest.approx(expected, rel=1e-6)
    text = typed("budget", *arguments).out
    assert f"  the same run as {a}: counted once" in text
    assert "all 2 runs on the same subjects together" in text
    assert "all 2 runs" in typed("budget", "--check", str(a), "--check", str(c)).out


HOSTILE = {
    "an epsilon that is no number": lambda d: d.update(epsilon=math.nan),
    "mu2 over zero": lambda d: d["events"][0].update(mu2="1/0"),
    "an epsilon past all numbers": lambda d: d.update(epsilon=10**400),
    "an epsilon that is a text": lambda d: d.update(epsilon="8"),
    "private in words": lambda d: d.update(private="no"),
    "nobody's noise": lambda d: d.update(min_survivors=[]),
}


def hostile(name: str) -> str:
    document = statement(events())
    HOSTILE[name](document)
    return json.dumps(document)


OTHERS = ("", "[]", "{}", '{"schema": "x"}', '{"schema": "cape-privacy-1"}')


@pytest.mark.parametrize("text", [*map(hostile, HOSTILE), *OTHERS], ids=[*HOSTILE, *OTHERS])
def test_a_file_that_no_run_writes_is_refused_in_plain_words(text: str, tmp_path, typed) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    assert "the file is not a privacy.json" in typed("budget", "--check", str(path), code=2).err


def test_a_run_without_a_promise_may_not_claim_an_epsilon(tmp_path) -> None:
    document = statement(events()) | {"guarantee": "none", "private": False, "epsilon": None}
    assert privacy_check.check_file(save(tmp_path, document)).findings == ()
    document["epsilon"] = 1.0
    assert privacy_check.check_file(save(tmp_path, document)).findings


def test_a_setting_of_another_computation_says_which(typed) -> None:
    """The papers' algorithms were settings of capedjica: a near name of its own helps nobody."""
    line = "budget --subjects 200 --sites 4 --epsilon 4 --set computation=capedjica --set"
    said = typed(*line.split(), "solver=infomax", code=2).err
    assert "unknown setting 'solver'" in said
    assert "Type: --set computation=paperdjica" in said
    assert "Type:" not in typed(*line.split(), "nobodys=1", code=2).err
