"""``cape ledger`` for people at a site, with ``close`` and ``forgive``."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from cape.cli.common import AsJson, file_option, policy_here, result, with_options
from cape.counting import number_of

if TYPE_CHECKING:
    from cape.privacy.spending import RunSpending, Spending
    from cape.site.access import Access
    from cape.site.ledger_file import LifetimeLedgerFile
    from cape.site.policy import SitePolicy


class _ShowsFirst(TyperGroup):
    """Let ``cape ledger`` and ``cape ledger FILE`` mean ``cape ledger show``, in its help too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["show", *args]
        return list(super().parse_args(ctx, args))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        # What is typed most has no name of its own.
        show = self.commands["show"]
        show.format_help(type(ctx)(show, parent=ctx.parent, info_name=ctx.info_name), formatter)


ledger = typer.Typer(
    name="ledger",
    cls=_ShowsFirst,
    help="Show what all runs on a site's data spent and hold; close a run, forgive an owner.",
    pretty_exceptions_enable=False,
)
LedgerOption = Annotated[
    Path | None,
    typer.Option("--file", help="The ledger; else that of the policy or of CAPE_SITE_HOME."),
]
PolicyOption = Annotated[
    Path | None, file_option("The site's policy; else CAPE_SITE_POLICY, else what is shipped.")
]


def _not_blank(text: str) -> str:
    if not text.strip():
        raise typer.BadParameter("say why, without a person's name: the ledger keeps it for good")
    return text.strip()


Why = Annotated[
    str,
    typer.Option(
        help="The reason, without a person's name: the ledger keeps it, with yours, for good.",
        callback=_not_blank,
    ),
]


class Opened(NamedTuple):
    """A ledger and the policy of its site."""

    file: LifetimeLedgerFile
    policy: SitePolicy
    spending: Spending
    is_told: bool  # whether the limits are those of this ledger, not what is shipped


def _opened(path: Path | None, policy_path: Path | None) -> Opened:
    from cape.errors import ConfigError
    from cape.privacy.spending import Spending
    from cape.site.files import side_path
    from cape.site.ledger_file import (
        LifetimeLedgerFile,
        limits_of,
        own_ledger,
        own_policy_file,
        read_ledger,
    )

    # A ledger of CAPE_SITE_HOME alone is that of a site without a policy.
    is_told = path is None or own_policy_file(path, policy_path) is not None
    if path is None:
        policy_here(policy_path)
    path, policy = own_ledger(path, policy_path)
    # Unanswered exchanges may be recorded before the ledger has a run.
    sides = [side_path(path, name) for name in ("head", "key", "unanswered")] if path else []
    if path is None or not (path.is_file() or any(side.exists() for side in sides)):
        problem = "no ledger is named here" if path is None else f"there is no ledger {path}"
        do = "name it with --file; docs/ledger.md says where to find it."
        raise ConfigError("E264", problem=problem, do=do)
    file = LifetimeLedgerFile(path=path, site="here", limits=limits_of(policy))
    # Checked as in a run, so that people here see damage first.
    began = path.exists() or any(side.exists() for side in sides[:2])
    spending = read_ledger(path) if began else Spending()
    return Opened(file=file, policy=policy, spending=spending, is_told=is_told)


@ledger.command("show", hidden=True)
@with_options
def show_command(
    file: Path | None = None,
    ledger_file: LedgerOption = None,
    policy: PolicyOption = None,
    as_json: AsJson = False,
) -> None:
    """Show every run with what it spent and holds, and exchanges that were never answered."""
    opened = _opened(file or ledger_file, policy)
    runs = [_run_fields(opened, run) for run in opened.spending.runs]
    unanswered = list(_unanswered(opened))
    fields = {
        "limit_mu": opened.file.limits.total.mu(),
        "limits": [list(pair) for pair in opened.policy.max_total],
        "runs": runs,
        "unanswered": unanswered,
        "forgiven": [dataclasses.asdict(record) for record in opened.spending.forgiven],
        "closed": [
            {"run": run.shown, "by": run.by, "text": run.why, "date": run.since}
            for run in opened.spending.runs
            if run.state == "closed"
        ],
    }
    result(fields, *_lines(opened, runs, unanswered), as_json=as_json)


@ledger.command("close")
@with_options
def close_command(
    run: str,
    why: Why,
    now: bool = False,
    ledger_file: LedgerOption = None,
    policy: PolicyOption = None,
    as_json: AsJson = False,
) -> None:
    """End a run for good, and free what it holds."""
    from cape.privacy.holds import FINAL
    from cape.site.ledger_texts import SHOWN_DIGITS, mu_text, owner_text

    opened = _opened(ledger_file, policy)
    # A run that was joined twice has one name; the site's own nonces differ.
    matches = [
        one
        for one in opened.spending.runs
        if run and run in (one.shown[: len(run)], one.run[: len(run)])
    ]
    if not matches:
        raise typer.BadParameter(f"no run begins with '{run}'; cape ledger lists them")
    if len({one.shown for one in matches}) > 1:
        listed = ", ".join(f"{one.run[:SHOWN_DIGITS]} ({one.state})" for one in matches)
        raise typer.BadParameter(f"'{run}' names {len(matches)} runs: {listed}; give more digits")
    if not now and any(opened.file.clock.is_running(one.run) for one in matches):
        text = f"run {matches[0].shown[:SHOWN_DIGITS]} computes now: stop it first, or close it "
        raise typer.BadParameter(f"{text}as it computes with --now; it then releases no more")
    # All sites of a simulation, and a run that was joined again, are one run.
    spending = max(matches, key=lambda one: (one.state not in FINAL, one.cost.mu() or 0.0))
    freed = spending.held - spending.cost
    fields = {"run": spending.shown, "charged_mu": spending.cost.mu(), "freed_mu": freed.mu()}
    short = spending.shown[:SHOWN_DIGITS]
    closed = [opened.file.end(one.run, "closed", by=_who(), text=why) for one in matches]
    if any(closed):
        line = (
            f"Closed: run {short} of {owner_text(spending.owner)}. It keeps what it charged "
            f"({mu_text(spending.cost)}) and frees what it held ({mu_text(freed)}). "
            "It reads nobody and releases nothing any more."
        )
    else:
        line = f"Run {short} {spending.state} on {spending.since}; it holds nothing."
        fields["freed_mu"] = 0.0
    result(fields, line, as_json=as_json, event="closed")


@ledger.command("forgive")
@with_options
def forgive_command(
    why: Why,
    owner: str = "",
    unnamed: bool = False,
    ledger_file: LedgerOption = None,
    policy: PolicyOption = None,
    as_json: AsJson = False,
) -> None:
    """Stop counting unanswered exchanges of an owner, if you know why they failed."""
    from cape.privacy.spending import Forgiven
    from cape.site.access import read_accesses
    from cape.site.files import side_path
    from cape.site.ledger_lines import today
    from cape.site.ledger_texts import owner_text

    if bool(owner) == unnamed:
        raise typer.BadParameter("give an OWNER, or --unnamed")
    opened = _opened(ledger_file, policy)
    accesses = read_accesses(opened.file.path)
    ended = {name: one for name, one in accesses.items() if not one.is_under_way}
    files = [name for name, one in ended.items() if one.owner == owner]
    if not files:
        others = sorted({owner_text(one.owner) for one in ended.values()})
        counted = f"counted: {', '.join(others)}" if others else "none is counted of any owner"
        raise typer.BadParameter(
            f"of {owner_text(owner) if owner else 'an owner without a name'} no exchange that has "
            f"ended is counted here; {counted}"
        )
    # Write the line first: after an interruption the command can be repeated.
    forgiven = Forgiven(owner=owner, count=len(files), by=_who(), text=why, date=today())
    opened.file.forgive(forgiven)
    for name in files:
        (side_path(opened.file.path, "unanswered") / name).unlink(missing_ok=True)
    line = (
        f"Forgiven: {number_of(len(files), 'exchange')} of {owner_text(owner)}. "
        "The ledger keeps your name and reason."
    )
    result({"owner": owner, "count": len(files)}, line, as_json=as_json, event="forgiven")


def _who() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have no user names
        return f"user {os.getuid()}"


def _names(opened: Opened) -> dict[str, str]:
    return {one.run: one.shown for one in opened.spending.runs}


def _run_fields(opened: Opened, run: RunSpending) -> dict[str, Any]:
    from cape.privacy.spending import Spending, largest_sum, sum_up

    limits, clock = opened.file.limits, opened.file.clock
    # This run alone, and together with all others on the same people.
    alone, together = Spending(runs=(run,)).of(run), opened.spending.of(run)
    others = opened.spending.others_by_person(run)
    delta = min((delta for _, delta in opened.policy.max_total), default=None)

    def remaining(field: str) -> float | None:
        amounts = {one.run: getattr(one, field) for one in opened.spending.runs}
        used = sum_up((amounts[run.run], largest_sum(others, amounts)))
        return (
            None if delta is None or not opened.is_told else limits.remaining(used).epsilon(delta)
        )

    holds = run.state == "held"
    as_it_is = ("owner", "date", "state", "computation", "dataset", "promised", "delta")
    return {
        "run": run.shown,
        **{name: getattr(run, name) for name in as_it_is},
        "since": run.since or run.date,
        "silent_s": clock.silence(run.run) if holds else None,
        "at_work": clock.is_running(run.run),
        "replaced_by": _names(opened).get(run.by, run.by) if run.state == "yielded" else None,
        "by": run.by if run.state == "closed" else None,
        "why": run.why or None,
        "subjects": len(run.people),
        "charges": len(run.charges),
        "planned_epsilon": run.epsilon,
        "mu": alone.mu,
        "epsilon": alone.epsilon,
        "held_mu": (run.held - run.cost).mu(),
        "left_epsilon": remaining("held"),
        "left_epsilon_when_ended": remaining("cost"),
        "all_runs": together.runs,
        "all_mu": together.mu,
        "all_epsilon": together.epsilon,
        "all_delta": together.delta,
    }


def _unanswered(opened: Opened) -> Iterator[dict[str, Any]]:
    """Yield the exchanges that count for `max_refusals`, grouped by owner and data set."""
    from cape.site.access import read_accesses, that_count

    held_runs = opened.file.held_runs()
    groups: dict[tuple[str, str], list[Access]] = {}
    for access in read_accesses(opened.file.path).values():
        groups.setdefault((access.owner, access.dataset), []).append(access)
    for group in groups.values():
        if not (records := that_count(group, held_runs)):
            continue
        yield {
            "owner": records[-1].owner,
            "dataset": records[-1].dataset,
            "count": len(records),
            "most": opened.policy.max_refusals,
            "records": [
                {"kind": one.state, "exchange": one.exchange, "date": one.date, "run": one.folder}
                for one in records
            ],
        }


def _of_people(fields: dict[str, Any]) -> Iterator[str]:
    """Yield what all runs spent on the people of a run, and what is left."""
    from cape.privacy.accounting import display_epsilon, display_left

    yield (
        f"  all runs on these people: epsilon {display_epsilon(fields['all_epsilon'])} "
        f"at delta {fields['all_delta']:g}, composed exactly: epsilons do not add"
    )
    if fields["left_epsilon"] is not None:
        later = (
            f", {display_left(fields['left_epsilon_when_ended'])} if the open runs are closed now"
        )
        yield (
            f"  left for these people: epsilon {display_left(fields['left_epsilon'])}"
            + (later if fields["left_epsilon"] != fields["left_epsilon_when_ended"] else "")
        )


def _lines(
    opened: Opened, runs: list[dict[str, Any]], unanswered: list[dict[str, Any]]
) -> Iterator[str]:
    """Yield the report as lines of text."""
    from cape.privacy.accounting import display_epsilon
    from cape.site.ledger_file import lost_key
    from cape.site.ledger_texts import (
        SHOWN_DIGITS,
        access_text,
        command,
        mu_text,
        owner_text,
        printable,
        state_text,
    )
    from cape.site.policy import promise_text

    path, names = opened.file.path, _names(opened)
    yield "Private: this list belongs to the site."
    for pair in opened.policy.max_total:
        unread = "" if opened.is_told else ", as shipped; the site's policy was not read (--policy)"
        yield f"Limit of all runs on the same people{unread}:"
        yield f"  {promise_text(pair)}"
    if lost := lost_key(path, opened.spending):
        lost = f"THE KEY {path.name}.key {lost.upper()}"
        yield f"{lost}: no run begins (CAPE-E262); put the ledger's own one back"
    yield f"{number_of(len(runs), 'run')} in {path}"
    people: dict[tuple[str, ...], list[str]] = {}
    for run, fields in zip(opened.spending.runs, runs, strict=True):
        state = state_text(run, opened.file.clock)
        by_whom = f" by {printable(run.by)}: {printable(run.why)}" if run.state == "closed" else ""
        if run.state == "yielded":
            by_whom = f" to run {names.get(run.by, run.by)[:SHOWN_DIGITS]}"
        short = run.shown[:SHOWN_DIGITS]
        yield ""
        yield (
            f"{short}  {owner_text(run.owner)}, {run.date}, {run.computation}, data set "
            f"{printable(run.dataset)[:16]}, {number_of(len(run.people), 'person')}"
        )
        yield f"  {state}{by_whom}, since {fields['since']}"
        yield (
            f"  charged {mu_text(run.cost)} (epsilon {display_epsilon(fields['epsilon'])}) in "
            f"{number_of(len(run.charges), 'release')}"
        )
        people.setdefault(tuple(_of_people(fields)), []).append(short)
        # A sum that was rounded up may leave less than can be seen.
        if run.state == "held" and fields["held_mu"] is not None and fields["held_mu"] < 1e-6:
            yield "  holds nothing more: to close it frees nothing"
        elif run.state == "held":
            holds = f"  holds {mu_text(run.held - run.cost)} more"
            if fields["at_work"]:
                yield holds
                continue
            yield f"{holds}; does it not go on?  Type:"
            yield f"  {command('close', short, path)}"
    for lines, of in people.items():
        yield ""
        yield from (("On the people of " + ", ".join(of) + ":",) if len(people) > 1 else ())
        yield from lines
    for one in unanswered:
        full = 0 < one["most"] <= one["count"]
        yield ""
        yield (
            f"{number_of(one['count'], 'exchange')} of {owner_text(one['owner'])} "
            f"{'was' if one['count'] == 1 else 'were'} never answered, never charged, or refused "
            f"by the total (max_refusals {one['most']}, data set "
            f"{printable(one['dataset']) or 'unnamed'})"
            + (": NO RUN OF THIS OWNER BEGINS" if full else "")
        )
        for record in one["records"]:
            yield f"  {access_text(record['kind'], record['exchange'], record['date'])}"
        yield "  Look at site-error.txt of these runs. If they told nothing, type:"
        yield f"  {command('forgive', one['owner'], path)}"
    for given in opened.spending.forgiven:
        yield ""
        yield (
            f"Forgiven on {given.date} by {printable(given.by)}: "
            f"{number_of(given.count, 'exchange')} of {owner_text(given.owner)}: "
            f"{printable(given.text)}"
        )
