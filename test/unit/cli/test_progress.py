"""Progress is true: what is left includes reading, rounds and report, within a factor of 1.5."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cape.cli import progress as module
from cape.cli.progress import EVERY, RunProgress, SiteProgress
from cape.lab.synthetic.consortium import Request, write_consortium
from cape.simulation.run_loop import BEFORE_JOIN, ProgressLine, progress_line
from cape.simulation.simulate import simulate


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def line(exchange: int, of: int, seconds: float) -> ProgressLine:
    given = progress_line(exchange, BEFORE_JOIN, BEFORE_JOIN, seconds, 3, 100)
    return replace(given, exchanges=of)


@pytest.mark.parametrize(("a_read", "n_rounds", "a_round"), [(4.0, 4, 3.0), (6.0, 46, 0.5)])
def test_time_left_is_right_from_the_tenth_subject_to_the_end(capsys, a_read, n_rounds, a_round):
    """A run of 60 people played by a clock; pages take what they took when they were measured."""
    clock, told = Clock(), []
    printer = RunProgress(as_json=True, quiet=False, clock=clock)
    total, begun = 60, clock.now

    def note() -> None:
        left = json.loads(capsys.readouterr().out)["seconds_left"]
        told.append((clock.now, left))

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


def test_elsewhere_than_in_a_terminal_a_line_a_minute_goes_to_stderr(capsys):
    clock = Clock()
    with SiteProgress(as_json=False, quiet=False, clock=clock) as printer:
        for done in range(1, 61):
            clock.now += 5
            printer("a", done, 60)
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert len(lines) == 1 + 59 * 5 // EVERY
    assert lines[0] == "a: 1 of 60 subjects read | 5 min left of this site"
    with SiteProgress(as_json=False, quiet=True, clock=clock) as printer:
        printer("a", 1, 2)
    assert capsys.readouterr().err == ""


def test_a_terminal_has_one_live_line(monkeypatch):
    from rich.console import Console

    console = Console(force_terminal=True, stderr=True)
    monkeypatch.setattr(module, "ERR", console)
    with RunProgress(as_json=False, quiet=False) as printer, console.capture() as capture:
        printer.subject("read", 3, 9)
        assert "3 of 9 subjects read" in str(printer._status.status)
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
