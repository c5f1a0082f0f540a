"""``cape forget``: delete what a site keeps of one person, and say what stays and why."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cape.cli.common import AsJson, policy_here, result, say
from cape.cli.ledger_commands import LedgerOption, PolicyOption
from cape.counting import number_of

if TYPE_CHECKING:
    from cape.site.forgetting import Charged, Traces

# The exit code of a label that is nowhere: a misspelt one must not pass for done.
NOBODY = 5
# The exit code if places are left that may hold something of the person
NOT_DONE = 6
# What no command can delete
STAYS = (
    "Results of runs with noise: sums over all people, which no deletion changes.",
    "Counts and ranges over all people in methods.md and site.json of private folders.",
    "Your own files: images, tables of people, site-policy.toml, logs of --log-file, backups, and "
    "what runs with another CAPE_CACHE stored.",
)


def forget_command(
    person: str,
    folders: list[Path] | None = None,
    data: Path | None = None,
    yes: bool = False,
    ledger_file: LedgerOption = None,
    policy: PolicyOption = None,
    as_json: AsJson = False,
) -> None:
    """Delete what is kept of one person, as docs/governance.md says; the ledger stays.

    Exit code 5: nobody of this name is in what was looked at; 6: with --yes, places are left that
    may hold the person; 1: a ledger is damaged, and the files are deleted.
    """
    from cape.data.names import bare
    from cape.site.forgetting import traces_of
    from cape.site.ledger_file import own_ledger
    from cape.site.places import SitePlaces

    if not bare(person):
        raise typer.BadParameter("name a person")
    policy_here(policy, quiet=as_json)
    ledger, own_policy = own_ledger(ledger_file, policy)
    store = SitePlaces.from_environment(os.environ).store_folder()
    traces = traces_of(
        person,
        folders or (),
        store=store,
        ledgers=() if ledger is None else (ledger,),
        dataset_id=own_policy.dataset_id,
        data=data,
    )
    looked = [str(path) for path in (*(folders or ()), store, ledger) if path and path.exists()]
    if not folders and not as_json:
        say(f"No folder of results was named; looked at: {', '.join(looked) or 'nothing'}.")
        if ledger is None or not ledger.exists():
            say(f"No ledger {'was named' if ledger is None else ledger}: --file or --policy.")
    listed = [] if data is None else list(_still_listed(data, traces.label))
    if yes:
        traces.remove()
    fields = {
        "person": traces.label,
        "deleted": yes,
        "removals": [{"path": str(each.path), "what": each.what} for each in traces.removals],
        "stays": [{"path": str(each.path), "why": each.why} for each in traces.stays],
        "ledgers": [
            {
                "path": str(each.path),
                "runs": each.runs,
                "listed": each.listed,
                "mu": each.cost.mu(),
                "elsewhere": each.elsewhere,
            }
            for each in traces.charged
        ],
        "alike": traces.alike,
        "still_listed": listed,
    }
    # A ledger whose names cannot be compared may hold the person.
    untold = any(each.lacks or each.damaged for each in traces.charged)
    is_nobody = bool(looked) and not (traces.is_known or listed or untold)
    nobody = looked if is_nobody else []
    lines = _lines(traces, listed, nobody, yes=yes, is_named=bool(folders))
    result(fields, *lines, as_json=as_json)
    if yes and any(each.damaged for each in traces.charged):
        raise typer.Exit(1)
    if yes and traces.stays:
        raise typer.Exit(NOT_DONE)
    # Of the wrong folder: nothing was deleted, and others may hold the person.
    own = [each for each in traces.removals if not each.is_of_all]
    nothing = bool(folders) and not (own or listed)
    missed = nothing and any(each.elsewhere or each.lacks for each in traces.charged)
    if is_nobody or missed:
        raise typer.Exit(NOBODY)


def _still_listed(folder: Path, label: str) -> Iterator[str]:
    """Yield where a site's files still list a person for its next run."""
    from cape.data.names import bare
    from cape.planning.people import people_below

    for each in people_below(folder):
        for person in each.people.listed:
            if bare(person.label) == label:
                n = len(person.runs)
                yield f"{each.people.folder}: {number_of(n, 'run')}"


def _lines(
    traces: Traces, listed: list[str], without: list[str], *, yes: bool, is_named: bool
) -> Iterator[str]:
    from cape.site.ledger_texts import SHOWN_DIGITS

    n = len(traces.removals)
    if without:
        yield f"NOBODY of this name ({traces.label}) in {', '.join(without)}"
        if n:
            yield "What runs hold of all people goes all the same:"
    if yes and traces.stays:
        yield "NOT DONE: what may hold this person is left; it stands below Stays, with what to do"
    yield f"{'Deleted' if yes else 'To delete'} ({traces.label}): {number_of(n, 'place')}"
    yield from (f"  {each.path}: {each.what}" for each in traces.removals)
    if traces.alike:
        yield f"Labels that look alike are not touched: {', '.join(traces.alike)}"
    yield "Stays:"
    yield from (f"  {each.path}: {each.why}" for each in traces.stays)
    like = "" if traces.is_known else " by labels that look alike"
    yield from (f"  {line}" for each in traces.charged for line in _ledger_lines(each, like))
    yield from (f"  {line}" for line in STAYS)
    for each in traces.charged if is_named else ():
        if runs := [name[:SHOWN_DIGITS] for name in each.elsewhere]:
            yield f"ELSEWHERE: {number_of(len(runs), 'run')} of {each.path} with this person, in"
            yield f"no folder that was named: {', '.join(runs)}; name their folders, too"
    if listed:
        yield "STILL LISTED for the next run; take the files away, or write 1 in the column "
        yield "exclude of the site's participants.tsv or manifest:"
        yield from (f"  {line}" for line in listed)
    if not yes and n:
        yield "Nothing is deleted yet: type it again with --yes."
    if not yes and traces.stays:
        yield f"It will say NOT DONE (exit code {NOT_DONE}) while places stand below Stays."


def _ledger_lines(charged: Charged, like: str) -> Iterator[str]:
    from cape.privacy.accounting import display_epsilon
    from cape.site.ledger_texts import SHOWN_DIGITS, command, mu_text

    if charged.damaged:
        yield f"{charged.path}: CANNOT BE READ, so nothing is told of it: {charged.damaged}"
        return
    runs = number_of(charged.runs, "run")
    spent = f"{charged.path}: {runs}, none of this person by name"
    if charged.lacks:  # names cannot be compared: never say that nobody is there
        spent = f"{charged.path}: {runs}; whose cannot be told without {charged.lacks}"
    if charged.delta is not None:
        epsilon = display_epsilon(charged.cost.epsilon(charged.delta))
        spent = f"{charged.path}: spent in {charged.listed} of {runs}{like}: "
        spent += f"{mu_text(charged.cost)}, epsilon {epsilon} at delta {charged.delta:g}"
    no_name = "it holds no name"
    if charged.told_of:
        no_name = f"{number_of(charged.told_of, 'reason')} that somebody gave there names this "
        no_name += "person, and cannot be taken out"
    yield f"{spent}; it stays spent, and {no_name}"
    for run in dict.fromkeys(charged.open_runs):
        short = run[:SHOWN_DIGITS]
        yield f"  run {short} may go on with this person: {command('close', short, charged.path)}"
