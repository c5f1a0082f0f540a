"""Texts about the ledger of all runs for people at the site, with the commands that they need."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from cape.privacy.cost import Cost
from cape.privacy.holds import Clock, Decision
from cape.privacy.spending import BY_HAND, RunSpending
from cape.site.access import Access

# Digits of a run's name that people read and type
SHOWN_DIGITS = 8
# Accesses that a text lists one by one
MAX_LISTED = 10


def mu_text(cost: Cost) -> str:
    mu = cost.mu()
    return "mu infinite" if mu is None else f"mu {mu:.3g}"


def printable(text: str) -> str:
    """Return a text from an engine or a person without control characters."""
    return "".join(c if c.isprintable() else "?" for c in text)


def owner_text(owner: str) -> str:
    return printable(owner) or "nobody named"


def silence_text(seconds: float) -> str:
    """Return a time in its two largest units: days, hours, minutes, seconds."""
    for large, small, length in (("d", "h", 86400), ("h", "min", 3600), ("min", "s", 60)):
        if seconds >= length:
            count, rest = divmod(int(seconds), length)
            rest //= {"h": 3600, "min": 60, "s": 1}[small]
            return f"{count} {large} {rest} {small}"
    return f"{int(seconds)} s"


def state_text(run: RunSpending, clock: Clock) -> str:
    """Return the state of a run, and how long it is silent if it holds a plan."""
    if run.state != "held":
        return "stopped" if run.state == "failed" and run.why == BY_HAND else run.state
    state = "charging" if run.charges else "held, nothing charged"
    if clock.is_running(run.run):
        return f"{state}, at work now"
    return f"{state}, silent {silence_text(clock.silence(run.run))}"


def command(verb: str, name: str, ledger: Path) -> str:
    """Return the command line of ``cape ledger`` for a run or an owner; it names the ledger."""
    what = shlex.quote(name) if name else "--unnamed"
    return f"cape ledger {verb} {what} --why TEXT --file {shlex.quote(str(ledger))}"


def waiting_text(decision: Decision, clock: Clock, ledger: Path) -> str:
    """Return a line for each open run that holds the room of another, with its close command."""
    lines = [f"a plan of {mu_text(decision.plan)} does not fit beside what these open runs hold:"]
    for run in decision.waits_for:
        lines.append(
            f"run {run.shown[:SHOWN_DIGITS]} of {owner_text(run.owner)}, since {run.since}: "
            f"{state_text(run, clock)}, holds {mu_text(run.held)}; if it does not go on: "
            + command("close", run.shown[:SHOWN_DIGITS], ledger)
        )
    return "\n".join(lines)


def access_text(state: str, exchange: str, date: str) -> str:
    if not exchange:
        return f"an exchange whose record cannot be read ({state})"
    return f"{exchange} of {date} ({state})"


def too_often_text(owner: str, counted: Sequence[Access], most: int, ledger: Path) -> str:
    listed = [access_text(one.state, one.exchange, one.date) for one in counted[:MAX_LISTED]]
    more = f", and {len(counted) - MAX_LISTED} more" if len(counted) > MAX_LISTED else ""
    return (
        f"max_refusals = {most}; counted of {owner_text(owner)}: {', '.join(listed)}{more}. Wait "
        "for those under way. If you know that the others told nothing: "
        + command("forgive", owner, ledger)
    )
