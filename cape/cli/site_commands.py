"""Commands of sites and owners: ``store``, ``policy``, ``settings``, ``pairs``, ``keygen``."""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cape.cli import common
from cape.counting import number_of

if TYPE_CHECKING:
    from cape.site.policy import SitePolicy


def store_command(
    of: str | None = None, clear: bool = False, as_json: common.AsJson = False
) -> None:
    """Show what the data store holds, which saves reading a file twice, or remove it."""
    from cape.data.data_store import DataStore
    from cape.site.places import SitePlaces

    if of == "":  # a variable of a shell that is not set
        raise typer.BadParameter("name a person or a folder")
    folder = SitePlaces.from_environment(os.environ).store_folder()
    store = folder and DataStore.open(folder)
    lines = [] if store else ["nothing is kept"]
    removed = found = (0, 0)
    if store and clear:
        removed = store.clear(of)
        lines.append(f"removed {_amount(removed, of)}")
        of = None  # what remains of all
    if store:
        found = store.size(of)
        lines.append(f"{_amount(found, of)} in {folder}")
    fields = {
        "folder": None if folder is None else str(folder),
        "entries": found[0],
        "bytes": found[1],
        "removed": {"entries": removed[0], "bytes": removed[1]},
    }
    common.result(fields, *lines, as_json=as_json)


def _amount(held: tuple[int, int], of: str | None) -> str:
    return f"{number_of(held[0], 'entry')}{f' of {of}' if of else ''}, {held[1] / 1e6:.1f} MB"


def policy_command(file: Path | None = None, as_json: common.AsJson = False) -> None:
    """Show a site policy as a run reads it, with every key, and the digest of this software."""
    import hashlib

    from cape.settings.documents import toml_text
    from cape.settings.own_words import as_tables
    from cape.site.policy import PAIR_KEYS, SitePolicy, code_digest, load_policy, promise_text

    file = common.policy_here(file, quiet=as_json)
    # Use a run's reader, so that a misspelt key is refused here.
    read = SitePolicy() if file is None else load_policy(file)
    for text in _doubtful(read):
        common.warn(text, as_json=as_json)
    policy = dataclasses.asdict(read)
    digest = "" if file is None else hashlib.sha256(file.read_bytes()).hexdigest()
    shipped, code = dataclasses.asdict(SitePolicy()), code_digest()
    # As lines of the file, ready to copy.
    lines = [
        # An empty table in one line could not be added to.
        ("# " if (said := as_tables(name, value)) == {} else "")
        + toml_text({name: said}).rstrip("\n")
        + ("" if value == shipped[name] else "  # not as shipped")
        for name, value in policy.items()
    ]
    lines += [f"# {name}: {promise_text(pair)}" for name in PAIR_KEYS for pair in policy[name]]
    lines += [f"# public_counts: the number of people in each level of {column} is published"
              for column in policy["public_counts"]]  # fmt: skip
    lines += [f"sha256 of the file: {digest}"] if digest else []
    lines += [f"this software, for image_digests: {code}"]
    common.result({"policy": policy, "sha256": digest, "software": code}, *lines, as_json=as_json)


def _doubtful(policy: SitePolicy) -> Iterator[str]:
    """Yield what a policy says that its writer may not have meant."""
    from cape.computations import names
    from cape.site.policy import NO_LEDGER, limit_of, pair_text

    if unknown := [name for name in policy.allow_computations if name not in names()]:
        yield f"allow_computations: {', '.join(unknown)} is no computation of this version"
    if not limit_of(policy.max_run) <= limit_of(policy.max_total):
        yield "max_total allows less than max_run: no run of max_run begins"
    if above := [pair for pair in policy.max_run if 0 < policy.max_delta < pair[1]]:
        yield f"max_delta {policy.max_delta:g} refuses a run of {pair_text(above[0])}"
    if policy.ledger_file == NO_LEDGER:
        yield 'ledger_file = "none": nothing is charged, so max_total limits nothing'
    if not policy.max_total:
        yield "max_total = []: any number of runs may ask the same people"
    if policy.allow_not_private:
        yield "allow_not_private: runs without noise protect nobody"
    if policy.veto:
        yield "veto: every run is refused"


def settings_command(
    file: Path,
    out: Path | None = None,
    replace: common.Replace = False,
    subjects: int | None = None,
    set_values: common.SetValues = None,
    as_json: common.AsJson = False,
) -> None:
    """Convert a form's inputs (.json) into a settings.toml, and back."""
    from cape.engines.coinstac.form import form_of, read_form, settings_text
    from cape.planning.consortium_folder import check_before_it_leaves, merged, read_file
    from cape.planning.judge import judge

    common.check_free(out, replace=replace)
    given = common.assignments(set_values)
    if file.suffix == ".json":
        text = settings_text(read_form(file), given)
        settings = tomllib.loads(text)
    else:
        settings = merged(read_file(file), given)
    judged = judge(settings, n_subjects=subjects).accepted()
    common.warn_of_policies(judged, as_json=as_json)
    if file.suffix != ".json":
        named = {**settings, "computation": judged.computation.name}
        text = json.dumps(form_of(named), indent=2) + "\n"
    check_before_it_leaves(text, file)
    if out is not None:
        out.write_text(text, encoding="utf-8")
    unplanned = "" if subjects else "; to check the number of subjects: --subjects"
    line = text.rstrip("\n") if out is None else f"written: {out}{unplanned}"
    common.result({"text": text, "path": None if out is None else str(out)}, line, as_json=as_json)


def pairs_command(file: Path, atlas: Path | None = None, as_json: common.AsJson = False) -> None:
    """Pair left and right labels of an atlas by name, for the setting label_pairs."""
    from cape.data.label_table import read_label_table
    from cape.data.space import mask_space
    from cape.planning.label_pairs import compare_places, pair_names
    from cape.settings.config import Config

    names = read_label_table(file)
    pairs = pair_names(names)
    if atlas is not None:
        given = {"epsilon": 1, "delta": 1e-5, "feature_space": "atlas", "atlas": atlas.name}
        pairs = compare_places(pairs, mask_space(Config.from_input(given), atlas.parent))
    how = "names and places" if atlas else "names only; --atlas compares places too"
    lines = [
        f'label_pairs = "{pairs.setting()}"',
        f"{number_of(len(pairs.pairs), 'pair')} of {number_of(len(names), 'label')}, by {how}",
    ]
    others = {
        "paired by name, but not mirror images of each other": [
            n for pair in pairs.apart for n in pair
        ],
        "with a side, but without one partner": pairs.single,
        "without a side": pairs.middle,
    }
    for heading, labels in others.items():
        if labels:
            lines.append(f"{heading}: " + ", ".join(f"{label} {names[label]}" for label in labels))
    fields = {"label_pairs": pairs.setting(), **dataclasses.asdict(pairs)}
    common.result(fields, *lines, as_json=as_json)


def keygen_command(
    out: Path, site: str = "", collect: list[Path] | None = None, as_json: common.AsJson = False
) -> None:
    """Make the identity key of a site (key_trust=pinned), or collect public keys of sites."""
    from cape.site.identity import collect_keys, make_key, write_public

    if collect:
        names, digest = collect_keys(collect, out)
        common.result(
            {"sites": names, "sha256": digest, "path": str(out)},
            f"{out}: {number_of(len(names), 'site')}, sha256 {digest}",
            # The aggregator could change a list that it relays.
            "Send it to every site, not through the aggregator; compare its sha256 by phone.",
            f'settings: key_trust = "pinned", n_sites = {len(names)}',
            f'settings: site_names = "{",".join(names)}"',
            as_json=as_json,
        )
        return
    public = make_key(out)
    fields = {"public_key": public, "path": str(out)}
    do = "Send it to the other sites directly, not through the aggregator, for their roster.json."
    if site:
        sent = fields["public"] = str(write_public(out.parent, site, public))
        do = f"Send {sent} to the owner; keep the roster.json that comes back beside {out.name}."
    common.result(fields, f"public key: {public}", do, as_json=as_json)
