"""Progress is true: what is left includes reading, rounds and report, within a factor of 1.5."""

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from pathlib import Path

import pytest

from cape.cli import progress as module
from cape.cli.progress import LINE_SECONDS, RunProgress, SiteProgress
from cape.lab.synthetic.consortium import Request, write_consortium
from cape.simulation.run_loop import BEFORE_JOIN, ProgressLine, progress_line
from support.consortium import no_pictures
from support.simulation import simulate


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def line(exchange: int, of: int, seconds: float) -> ProgressLine:
    given = progress_line(exchange, BEFORE_JOIN, BEFORE_JOIN, seconds, 3, 100)
    return replace(given, exchanges=of)


@pytest.mark.parametrize(("a_read", "n_rounds", "a_round"), [(4.0, 4, 3.0), (6.0, 46, 0.5)])
def test_time_left_is_right_from_the_tenth_subject_to_the_end(
    capsys, monkeypatch, a_read, n_rounds, a_round
):
    """A run of 60 people played by a clock; pages take what they took when they were measured."""
    clock, told, bars = Clock(), [], [0.0]
    monkeypatch.setattr(
        RunProgress,
        "show",
        lambda *given, old=RunProgress.show: bars.append(given[-1]) or old(*given),
    )
    printer = RunProgress(as_json=True, quiet=False, clock=clock)
    total, begun = 60, clock.now

    def note() -> None:
        told.append((clock.now, json.loads(capsys.readouterr().out)["seconds_left"]))

    for done in range(1, total + 1):
        clock.now += a_read * (1.3 if done % 3 else 0.4)  # files differ
        printer.subject("read", done, total)
        note()
    printer(line(1, n_rounds + 2, clock.now - begun))
    note()
    for k in range(n_rounds):
        clock.now += a_round
        printer(line(2 + k, n_rounds + 2, a_round))
        note()
    for done in range(total):
        printer.subject("report", done, total)
        note()
        clock.now += a_read * 0.95 + 11.0 * (done % 20 == 19)  # a site's page
    clock.now += 9.0
    wrong = [
        (when - begun, left, clock.now - when)
        for when, left in told[9:-3]  # at the very end seconds are no matter
        if not 1 / 1.5 <= left / (clock.now - when) <= 1.5
    ]
    assert len(told) > 100
    assert wrong == []
    # One bar over the run: it began again with every stage.
    assert bars == sorted(bars)
    assert bars[-1] > 0.9


def test_elsewhere_than_in_a_terminal_a_line_a_minute_goes_to_stderr(capsys):
    clock = Clock()
    with SiteProgress(as_json=False, quiet=False, clock=clock) as printer:
        for done in range(1, 61):
            clock.now += 5
            printer("a", done, 60)
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert len(lines) == 60 * 5 // LINE_SECONDS
    # None of the first person, whose time says nothing of the others: it said "21 min left" of one.
    assert lines[0] == "a: reading people, 12 of 60, 12 a minute, about 4 min left"
    with SiteProgress(as_json=False, quiet=True, clock=clock) as printer:
        printer("a", 1, 2)
    assert capsys.readouterr().err == ""


def test_phases_of_every_run_have_plain_words():
    """ "zero-sum.probe" stood there for the longest part of a short run."""
    from cape.protocol.zero_sum import PROBE

    assert module.PHASE_WORDS[PROBE] == "exchanging keys"


def test_a_comparison_reads_people_once(capsys):
    """ "about 2 min left" stood there for eleven of 99 people, seconds before the end."""
    clock, left = Clock(), {}
    for stage in ("read", "read once"):
        printer = RunProgress(as_json=True, quiet=False, clock=clock)
        clock.now += 60.0
        printer.subject(stage, 90, 99)
        told = json.loads(capsys.readouterr().out)
        assert told["stage"] == "read"
        left[stage] = told["seconds_left"]
    assert left == {"read": 6 + 15 + 66 + 40, "read once": 6 + 15 + 10}


def test_a_terminal_has_one_live_line(monkeypatch):
    from rich.console import Console

    console = Console(force_terminal=True, stderr=True)
    monkeypatch.setattr(module, "STDERR", console)
    with RunProgress(as_json=False, quiet=False) as printer, console.capture() as capture:
        printer.subject("read", 3, 9)
        assert "reading people  3 of 9" in str(printer._status.status)
    assert "\n\n" not in capture.get()


def test_all_sites_count_their_people_together_and_again_for_their_pages(tmp_path, monkeypatch):
    from cape.report import site_page

    monkeypatch.setattr(site_page, "render_site", lambda folder: folder / "index.html")
    write_consortium(tmp_path / "s", Request(site_sizes=(4, 3, 3), n_timepoints=30, n_networks=2))
    told: list[tuple[str, int, int]] = []
    simulate(
        tmp_path / "s", out=tmp_path / "out",
        settings={"private": False, "n_rounds": 2},
        on_subject=lambda *event: told.append(event),
    )  # fmt: skip
    assert [event for event in told if event[0] == "read"] == [
        ("read", n, 10) for n in range(1, 11)
    ]
    assert [event[1] for event in told if event[0] == "report"] == list(range(10))


def frames(columns: int, words: list[str], without: Path) -> list[str]:
    """Return the live lines of a command in a terminal of so many columns; pages are of words."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "CI")}
    with subprocess.Popen(
        [sys.executable, "-m", "cape", *words], stderr=theirs, stdout=subprocess.DEVNULL,
        env={**env, "TERM": "xterm-256color", "PYTHONPATH": str(no_pictures(without))},
    ) as running:  # fmt: skip
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # the other end has gone
            while part := os.read(ours, 65536):
                seen += part
    os.close(ours)
    assert running.returncode == 0, seen
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    return [line for line in re.split(r"[\r\n]+", text) if re.match("[\u2800-\u28ff] ", line)]


@pytest.fixture(scope="module")
def small_study(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "s"
    write_consortium(
        folder, Request(preset="paper", site_sizes=(14, 13, 13), n_timepoints=150, n_networks=2)
    )
    return folder


SHAPE = r"[#-]{10,30}  \S.*  about .* left"


def check_lines(lines: list[str], width: int) -> None:
    assert all(re.fullmatch(SHAPE, line) and len(line) <= width for line in lines), lines
    bars = [line.split("  ")[0].count("#") for line in lines]
    assert bars == sorted(bars), "a bar went back"


@pytest.mark.parametrize("columns", [80, pytest.param(100, marks=pytest.mark.long)])
def test_a_terminal_shows_bar_and_time_left(tmp_path, small_study, columns):
    """It was 114 columns wide, so its end, the time left, was cut in most terminals.

    A terminal is drawn some ten times a second: which steps it shows hangs on the computer's speed.
    """
    words = f"simulate {small_study} --out {tmp_path / 'out'} --epsilon 8 --delta 1e-5"
    seen = frames(columns, [*words.split(), "--set", "n_rounds=20"], tmp_path / "without")
    assert seen
    check_lines([line[2:] for line in seen], columns - 2)


@pytest.mark.parametrize("columns", [80, 100])
def test_every_line_of_a_run_has_its_bar_its_words_and_the_time_left(
    tmp_path, small_study, monkeypatch, columns
):
    from rich.console import Console

    monkeypatch.setattr(module, "STDERR", Console(force_terminal=True, quiet=True, width=columns))
    seen: list[str] = []
    with RunProgress(as_json=False, quiet=False) as progress:

        def noted(told):
            def tell(*event):
                told(*event)
                seen.append(str(progress._status.status))

            return tell

        simulate(
            small_study, out=tmp_path / "out",
            settings={"epsilon": 8, "delta": 1e-5, "n_rounds": 20},
            on_progress=noted(progress), on_subject=noted(progress.subject),
        )  # fmt: skip
    check_lines(seen, columns - 2)
    people = [line for line in seen if re.search(r"reading people  \d+ of 40, \d", line)]
    rounds = [line for line in seen if re.search(r"round \d+ of 20  epsilon [\d.]+ of 8 ", line)]
    assert len(people) == 40
    assert len(rounds) > 5
