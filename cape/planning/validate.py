"""Check a site's data before a run and report every reason; no network, no release."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from cape.counting import CountedPeople, counted_together
from cape.data.data_store import DataStore
from cape.data.discovery import check_layout_is_said
from cape.data.folders import sites_below, words_beside
from cape.data.issues import Finding, Findings, IssueCode
from cape.data.person_tables import lacking
from cape.data.pipeline import Inspection, SiteData, inspect_site
from cape.errors import CapeError, CapeWarning, ConfigError, PrivacyBudgetError, warn_caller
from cape.frozen import dataclass
from cape.planning.consortium_folder import OwnerSettings, read_settings, settings_beside
from cape.planning.judge import joined_roster, judge_config
from cape.protocol.join import CARD_NONCE_BYTES, Entries, compare_cards, make_card
from cape.protocol.messages import SiteCard
from cape.protocol.model import RosterEntry
from cape.settings.config import Config
from cape.settings.own_words import OwnWords
from cape.settings.resolved import resolve
from cape.site import ledger_file
from cape.site.ledger_texts import waiting_text
from cape.site.places import SitePlaces
from cape.site.policy import ONLY_FORBIDS, SitePolicy, policies_below, tightened_beside
from cape.site.site_data import listed_people

# Called with (site, subjects done, subjects in all)
OnSiteSubject = Callable[[str, int, int], None]
# Of a policy that is found beside data


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteCheck:
    """The check of one site."""

    site: str
    inspection: Inspection
    findings: tuple[Finding, ...]  # of the data and of the policy, worst first
    seconds: float  # time to read everything
    # Of a comparison, what its card would say: people by public cell, outcomes that it lacks
    counts: tuple[int, ...] = ()
    lacks: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        return not any(finding.severity == "E" for finding in self.findings)


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderCheck:
    """The checked sites and their comparison."""

    sites: tuple[SiteCheck, ...]  # in order of their ids
    handshake: tuple[Finding, ...]  # about the comparison of sites and the plan
    headers_only: bool  # the data were not read

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (*(f for site in self.sites for f in site.findings), *self.handshake)

    @property
    def counted(self) -> CountedPeople:
        """The people of all sites who count."""
        return counted_together(check.inspection.counted for check in self.sites)

    @property
    def entries(self) -> Entries:
        """What the cards of a comparison would say of people; empty unless all sites count them."""
        there = [check for check in self.sites if check.counts and check.inspection.accepted]
        if len(there) < len(self.sites):
            return ()
        people = self.accepted
        return tuple(
            RosterEntry(
                site=check.site,
                nonce="",
                n_subjects=people[check.site].n_subjects,
                counts=check.counts,
                lacks=check.lacks,
            )
            for check in there
        )

    @property
    def accepted(self) -> dict[str, SiteData]:
        """Data of sites that take part in the handshake; a site that must stop is absent."""
        by_site = {check.site: check.inspection.accepted for check in self.sites}
        return {site: data for site, data in by_site.items() if data is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Listed:
    """Facts about a site's data that the ledger of all runs needs."""

    people: list[ledger_file.ListedPerson]
    contents: str


def validate(
    folder: str | Path,
    *,
    settings: Mapping[str, object] | None = None,
    policy: SitePolicy | None = None,
    fast: bool = False,
) -> tuple[Finding, ...]:
    """Return all findings about the folder of a site or of a consortium.

    Parameters
    ----------
    folder : path
        Its ``settings.toml``, in it or beside it, is read.
    settings : mapping, optional
        Settings of docs/config.md; they override the file.
    policy : SitePolicy, optional
        Limits of the site, whose ledger is read too; those of CAPE_SITE_POLICY by default, else
        the shipped ones.
    fast : bool
        Read only headers and tables.

    Returns
    -------
    tuple of Finding
        Site by site, worst first.  ``severity`` "E": not ready, "X": a subject fails, "W": a
        warning.  ``private`` names files and is for the site; others read only ``public``.

    Raises
    ------
    ConfigError
        The settings are wrong.

    Examples
    --------
    >>> cape.validate("study")
    ()
    >>> (finding, *_) = cape.validate("study", settings={"min_timepoints": 200})
    >>> finding.severity, finding.code
    ('E', 'CAPE-E129')
    """
    if not Path(folder).is_dir():
        do = "give the folder of a site or of several."
        raise ConfigError("E284", problem=f"no folder {folder}", do=do)
    owner = read_settings(settings_beside(Path(folder)), settings or {})
    ledger, allowed = ledger_file.own_ledger(policy=policy)
    store = None if fast else own_store(SitePlaces.from_environment(os.environ))
    checked = check_folder(
        Path(folder), owner, policy=allowed, store=store, headers_only=fast, ledger=ledger
    )
    return checked.findings


def own_store(places: SitePlaces) -> DataStore | None:
    """Return this user's data store; None, with a warning if one is wanted, if there is none."""
    folder = places.store_folder()
    store = None if folder is None else DataStore.open(folder)
    if folder is not None and store is None:
        text = f"{folder} is not a folder of yours alone: nothing is stored, files are read again"
        warn_caller(text, CapeWarning)
    return store


def check_folder(
    folder: Path,
    owner: OwnerSettings,
    *,
    policy: SitePolicy,
    given: Mapping[str, object] | None = None,
    site: str = "",
    store: DataStore | None = None,
    on_progress: OnSiteSubject | None = None,
    headers_only: bool = False,
    maps: Path | None = None,
    ledger: Path | None = None,
) -> FolderCheck:
    """Check the data of one site or of every site; `given` names the files of one.

    `ledger`: that of all runs, which is only read.  `maps`: folder or file of public maps, in
    place of those in the folders of sites.
    """
    owner.computation.bind(owner.config)  # ConfigError for a comparison that asks nothing
    sites = {} if given else sites_below(folder)
    folders = sites or {site or folder.resolve().name: folder}
    checks = tuple(
        check_site(
            base,
            given or {},
            owner,
            site=name,
            policy=policy,
            store=store,
            on_progress=on_progress,
            headers_only=headers_only,
            maps=maps,
            ledger=ledger,
        )
        for name, base in folders.items()
    )
    # One site has no other to compare with.
    if len(folders) > 1:
        differences = handshake(checks, owner)
        return FolderCheck(sites=checks, handshake=differences, headers_only=headers_only)
    unsaid: list[Finding] = []
    if owner.has_budget:
        with _noted(unsaid, "Ask the owner for the whole settings.toml."):
            judge_config(owner.computation, owner.config)
    return FolderCheck(sites=checks, handshake=tuple(unsaid), headers_only=headers_only)


def check_site(
    base: Path,
    given: Mapping[str, object],
    owner: OwnerSettings,
    *,
    site: str,
    policy: SitePolicy,
    store: DataStore | None = None,
    on_progress: OnSiteSubject | None = None,
    headers_only: bool = False,
    maps: Path | None = None,
    ledger: Path | None = None,
) -> SiteCheck:
    """Return all findings of `join` for a site; `headers_only` skips the data, others as above."""
    began, hint = time.monotonic(), ""
    is_shipped = policy == SitePolicy()
    of_counts = "Give that file with --policy." if is_shipped else ""
    if is_shipped and policies_below(base):
        hint = of_counts = ONLY_FORBIDS
        is_shipped = False
    if policy.words == OwnWords():  # as a run that takes the file in the folder for its own
        policy = replace(policy, **asdict(words_beside(base)))
    policy = tightened_beside(policy, base, site)
    inspection = inspect_site(
        base,
        given,
        owner.config,
        site=site,
        working=Path.cwd(),
        store=store,
        on_subject=None if on_progress is None else lambda n, of: on_progress(site, n, of),
        headers_only=headers_only,
        words=policy.words,
        maps=maps,
    )
    inspection = _with_templates(inspection, maps or base, owner.config, site)
    if inspection.accepted is not None:
        # Outcomes of images are computed in the run.
        least = policy.min_group
        idle = inspection.accepted.adding_nothing(owner.config, least, measured=False)
        counted = inspection.counted.without(idle.values())
        inspection = replace(inspection, counted=counted, idle=frozenset(idle))
    accepted, refused = inspection.accepted, list(inspection.findings)
    # The policy judges settings only with a budget; counts leave whatever that will be.
    if not owner.has_budget:
        unheard: list[Finding] = []
        with _noted(unheard, of_counts):
            policy.check_counts(site, owner.config)
        # A lab that is alone needs no policy; whoever has one reads here what it refuses.
        refused += map(_before_others, unheard) if is_shipped else unheard
    if owner.has_budget:
        fix = (
            hint or "Ask the owner for other settings, or change this line of the site's own file."
        )
        for refusal in policy.refusals(site, owner.computation.name, owner.config):
            # The public text of a refused count says what to write.
            refused.append(_finding(refusal, of_counts if refusal.code == "CAPE-E168" else fix))
    if accepted is not None:
        with _noted(refused, "Add subjects, or lower min_subjects in the site's policy."):
            policy.check_size(site, accepted.n_subjects)
    if accepted is not None and ledger is not None and owner.has_budget and owner.config.private:
        with _noted(refused, "Ask for less, or ask the people at the site: cape ledger."):
            _check_total(accepted, owner, policy, ledger, site)
    if owner.has_budget:
        # A run would end here; the files may show what the settings lack.
        here = 0 if accepted is None else accepted.space.n_features
        hint = f"; the files here have n_features = {here}" if here else ""
        with _noted(refused, f"Ask the owner to say it{hint}."):
            check_layout_is_said(inspection.subjects, owner.config)
    counts, lacks = _said(accepted, owner.config, policy, Findings(site), refused)
    return SiteCheck(
        site=site,
        inspection=inspection,
        findings=tuple(sorted(refused, key=lambda finding: "EXW".index(finding.severity))),
        seconds=time.monotonic() - began,
        counts=counts,
        lacks=lacks,
    )


def _check_total(
    accepted: SiteData, owner: OwnerSettings, policy: SitePolicy, ledger: Path, site: str
) -> None:
    """Raise PrivacyBudgetError if the ledger of all runs has no room for this run now."""
    file = ledger_file.LifetimeLedgerFile(
        path=ledger, site=site, limits=ledger_file.limits_of(policy)
    )
    people = listed_people(accepted, owner.config)
    data = _Listed(people=people, contents=accepted.fingerprint)
    all_runs = ledger_file.LifetimeLedger(file=file, dataset_id=policy.dataset_id, data=data)
    promised = policy.simulation_seed < 0
    decision = all_runs.foresee(owner.computation.name, owner.config, promised=promised)
    if decision.word == "spent":
        raise policy.over_total(site, asked=decision.plan, left=decision.left)
    if decision.word == "wait":
        detail = waiting_text(decision, file.clock, ledger)
        raise PrivacyBudgetError("E236", site=site, detail=detail)


def _before_others(refusal: Finding) -> Finding:
    text = "CAPE-W168 Nobody has written a policy of this site. Before a run with others: "
    text += refusal.private.partition(" ")[2]
    return replace(refusal, code="CAPE-W168", severity="W", private=text, public="")


def _said(
    accepted: SiteData | None,
    config: Config,
    policy: SitePolicy,
    noted: Findings,
    findings: list[Finding],
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return counts and missing outcomes that a comparison would say; adds levels that it hides."""
    if accepted is None or accepted.people is None or config.question is None:
        return (), ()
    accepted.people.note_few(config.question, policy.min_group, noted)
    findings += noted.listing()
    _, counts = accepted.people.said(config.question, policy.min_group)
    return counts, lacking(config.question, policy.words)


def _with_templates(inspection: Inspection, maps: Path, config: Config, site: str) -> Inspection:
    accepted = inspection.accepted
    if accepted is None or not resolve(config).templates:
        return inspection
    from cape.data.templates import alike, check_names, with_templates

    filled, findings, told = None, list(inspection.findings), Findings(site)
    with _noted(findings, "Put the file that the owner sent into the site's folder."):
        if config.question and config.question.measure:
            check_names(maps, config.question.measure, site=site)
        sent = resolve(config).sends_maps
        space = with_templates(accepted.space, maps, site=site, sent=sent)
        filled = replace(accepted, space=space)
        if pairs := alike(space):
            told.add(IssueCode.MAPS_ALIKE, pairs)
            findings += told.listing()
    return replace(inspection, findings=tuple(findings), accepted=filled)


def handshake(sites: Sequence[SiteCheck], owner: OwnerSettings) -> tuple[Finding, ...]:
    """Return the aggregator's findings: differences of sites and, with a budget, about the plan."""
    computation, config = owner.computation, owner.config
    # Make the cards that sites would send, so that the code of a run compares them.
    cards: dict[str, SiteCard] = {}
    for check in sites:
        if (accepted := check.inspection.accepted) is not None:
            nonce = os.urandom(CARD_NONCE_BYTES)
            card = make_card(computation.name, config, accepted, nonce=nonce, noise="os")
            cards[check.site] = replace(card, counts=check.counts, lacks=check.lacks)
    try:
        if not cards:
            return ()
        if len(cards) < len(sites) or not owner.has_budget:
            # A missing site has errors of its own; do not report too few sites as well.
            fewer = len(cards) < len(sites)
            of_any_number = replace(config, min_sites=1, n_sites=0, site_names="")
            compare_cards(cards, of_any_number if fewer else config)
            return ()
        judge_config(computation, config, n_sites=len(sites))
        roster = joined_roster(cards, computation, config)
    except CapeError as err:
        return (_finding(err),)
    return tuple(
        Finding(code="CAPE-W150", severity="W", private=f"CAPE-W150 {text}", public="")
        for text in roster.warnings
    )


@contextmanager
def _noted(findings: list[Finding], fix: str) -> Iterator[None]:
    """Turn a CapeError raised inside into a finding."""
    try:
        yield
    except CapeError as err:
        findings.append(_finding(err, fix))


def _finding(err: CapeError, fix: str = "") -> Finding:
    # The detail may name files and subjects, so only the private text has it.
    parts = [str(err), err.detail, fix and f"Fix: {fix}"]
    return Finding(
        code=err.code, severity="E", private=" ".join(p for p in parts if p), public=str(err)
    )
