"""Sources of a site's data: files in its folder, or arrays in this process."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from cape.algorithms.estimators import Data
from cape.errors import DataError
from cape.frozen import dataclass
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.site.policy import SitePolicy
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import public_basis, widest_basis

# A round with existing working arrays reads no data, so it loads neither readers nor report.
if TYPE_CHECKING:
    from cape.counting import CountedPeople
    from cape.data.checks import Subject
    from cape.data.issues import Findings
    from cape.data.pipeline import SiteData
    from cape.data.runs import Person
    from cape.report.derivatives import RunFacts
    from cape.report.private_folder import PrivateSummary
    from cape.settings.own_words import OwnWords
    from cape.site.ledger_file import ListedPerson


def listed_people(data: SiteData, config: Config) -> list[ListedPerson]:
    """Return the people of a site as the ledger of all runs knows them."""
    from cape.data.names import bare, likeness
    from cape.site.ledger_file import ListedPerson

    people, question = [], config.question
    # Including people who failed: noisy sums depend on that, which costs their budget.
    for label, digests in zip(data.listed, data.digests, strict=True):
        # Without confounds: the owner chooses them, and could otherwise turn the same data into
        # new people with a new budget.
        files = tuple(digest.partition("+")[0] for digest in digests)
        if question and question.of_tables:
            # No digest of a row: it may be a single small number, which others share and which
            # a reader of the ledger could guess.
            files = ()
        spellings = bare(label), likeness(bare(label))
        people.append(ListedPerson(label=label, files=files, spellings=spellings))
    return people


class FileSource:
    """Files of a site, read when first needed; `listing` may pin their ``contents`` (E161).

    `maps`: folder of public templates outside `base`.  `strict`: too many failed subjects stop a
    run (E100), and with `stop_if_most_fail` more than half; the site's policy must
    allow both.  `store`: folder of data read by earlier runs.  `min_group`: as in that policy.
    """

    def __init__(
        self,
        base: Path,
        listing: Mapping[str, object],
        config: Config,
        site: str,
        working: Path | None = None,
        *,
        strict: bool = False,
        stop_if_most_fail: bool = True,
        store: Path | None = None,
        words: OwnWords | None = None,
        maps: Path | None = None,
        min_group: int = 1,
    ) -> None:
        self.config = config
        self._maps = maps or base
        self._store = store
        self._base, self._site, self._working = base, site, working
        self._strict, self._stop = strict, stop_if_most_fail
        self._words, self._min_group = words, min_group
        # Called with "read", "read once" or "report", and how many subjects were read so far
        self.on_subject: Callable[[str, int], None] = lambda stage, done: None
        self.is_read = False  # whether anybody's data were looked at
        sources = ("data", "manifest", "bids")
        self._listing = {name: listing[name] for name in sources if name in listing}
        self._expected = listing.get("contents")
        self._accepted: SiteData | None = None
        self._reduced: list[tuple[str, Data]] = []
        self._templated: FeatureSpace | None = None

    def count(self) -> int:
        """Return the number of listed people, from names alone."""
        from cape.data.issues import Findings
        from cape.data.people import read_people

        findings = Findings(self._site)
        people = read_people(
            self._base, self.config, findings, listing=self._listing, words=self._words
        )
        return len(people.listed)

    def _data(self) -> SiteData:
        if self._accepted is None:
            # Here, not above: a round that finds its working arrays imports no reader of files.
            from cape.data.data_store import DataStore
            from cape.data.discovery import SiteListing, check_layout_is_said
            from cape.data.issues import in_full
            from cape.data.pipeline import load_site

            def opened() -> None:
                self.is_read = True

            def reading(files: SiteListing) -> None:
                check_layout_is_said(files.listed, self.config)
                opened()

            # Maps of single people need their voxels again, a comparison's rows do not.
            stage = "read" if self.config.question is None else "read once"

            def loaded() -> SiteData:
                accepted, self._reduced = load_site(
                    self._base,
                    self._listing,
                    self.config,
                    site=self._site,
                    working=self._working,
                    strict=self._strict,
                    # Later rounds read the people that `join` accepted.
                    stop_if_most_fail=self._stop and self._expected is None,
                    store=None if self._store is None else DataStore.open(self._store),
                    before_records=opened,
                    before_reading=reading,
                    on_subject=lambda done, total: self.on_subject(stage, done),
                    words=self._words,
                    maps=self._maps,
                )
                return self._with_few(self._with_outcomes(accepted))

            accepted = loaded()
            if self._expected not in (None, accepted.fingerprint) and accepted.failed:
                # Read once more: a network disk or lack of memory may have caused the difference.
                accepted = loaded()
            if self._expected not in (None, accepted.fingerprint):
                detail = f"not the files of the first round\n{in_full(accepted.findings)}".rstrip()
                raise DataError("E161", site=self._site, detail=detail)
            self._accepted = accepted
        return self._accepted

    def _with_outcomes(self, accepted: SiteData) -> SiteData:
        """Compute outcomes from the time courses if the settings ask for outcomes of maps."""
        question, people = self.config.question, accepted.people
        if question is None or question.measure is None or question.of_gift or people is None:
            return accepted
        from cape.data.groups import of_images, short_session
        from cape.data.issues import Findings, IssueCode

        findings = Findings(self._site)
        courses, self._reduced = self._reduced, []
        people = of_images(
            people, question, question.measure, accepted.subjects, courses, self.config
        )
        without = {
            label for label, u in zip(people.labels, people.u, strict=True) if np.isnan(u).all()
        }
        for subject in accepted.subjects:
            if subject.label in without:
                short = short_session(subject, question, self.config)
                code = IssueCode.SESSION_SHORT if short else IssueCode.OUTCOME_NONE
                place = f"'{subject.label}'{short and f': {short}'}"
                findings.add(code, place, least=self.config.min_timepoints)
        found = (*accepted.findings, *findings.listing())
        return dataclasses.replace(accepted, people=people, findings=found)

    def _with_few(self, accepted: SiteData) -> SiteData:
        """Note of a comparison which levels the site does not say."""
        question, people = self.config.question, accepted.people
        if question is None or people is None:
            return accepted
        from cape.data.issues import Findings

        findings = Findings(self._site)
        people.note_few(question, self._min_group, findings)
        return dataclasses.replace(accepted, findings=(*accepted.findings, *findings.listing()))

    @property
    def lacks(self) -> tuple[str, ...]:
        """Outcomes that the site states it does not have, which it says to all."""
        from cape.data.folders import words_beside
        from cape.data.person_tables import lacking

        words = words_beside(self._base) if self._words is None else self._words
        return lacking(self.config.question, words) if self.config.question else ()

    @property
    def contents(self) -> str:
        """Fingerprint of the accepted files; never leaves the site."""
        return str(self._expected or self._data().fingerprint)

    @property
    def notice(self) -> str:
        """People who count as zeros, and faults, for this site's own staff; "" without any."""
        from cape.data.issues import in_full

        data, counted = self._data(), self.counted
        if counted.all and all(finding.is_remark for finding in data.findings):
            return ""
        head = f"Site {self._site}: {counted.sentence}"
        if not counted.counted:
            head = (
                f"NOBODY of site {self._site} takes part: all {counted.listed} people that "
                "it lists fail a check and count as zeros."
            )
        rule = (
            "Nobody else is told. Put them right, or off the list, before a run; a line "
            "stop_for_data = true in site-policy.toml ends such a run here."
        )
        return f"{head}\n{rule}\n\n{in_full(data.findings)}\n"

    @property
    def counted(self) -> CountedPeople:
        """How many listed people count; of a comparison, those with a row that adds something."""
        return self._data().counting(self.config, self._min_group)

    @property
    def people(self) -> list[ListedPerson]:
        """Names and digests of files; never leave the site."""
        return listed_people(self._data(), self.config)

    @property
    def stated(self) -> frozenset[str]:
        """Labels of the listed people; never leave the site."""
        return frozenset(self._data().listed)

    @property
    def space(self) -> FeatureSpace:
        """Feature space, with the templates that the settings ask for."""
        space = self._data().space
        if not resolve(self.config).templates:
            return space
        if self._templated is None:
            from cape.data.templates import with_templates

            sent = resolve(self.config).sends_maps
            self._templated = with_templates(space, self._maps, site=self._site, sent=sent)
        return self._templated

    @property
    def n_subjects(self) -> int:
        return self._data().n_subjects

    def reduced(self, n_basis: int) -> Iterator[tuple[str, Data]]:
        """Yield (label, Y_m (d, T_m)) subject by subject: as reduced in `join`, else read again.

        In a comparison a subject is its row (K + 1 + C, 1), and people come in public order.
        """
        accepted = self._data()
        if self.config.question is not None and accepted.people is not None:
            labels, rows = accepted.people.rows(self.config.question)
            yield from zip(labels, rows[:, :, None], strict=True)
            return
        first_pass, self._reduced = self._reduced[::-1], []
        if first_pass and n_basis == widest_basis(resolve(self.config), self.space):
            # Yielded one by one, so that the caller's stacks do not hold the data twice.
            while first_pass:
                yield first_pass.pop()
            return
        from cape.data.pipeline import reduce_again

        B = public_basis(resolve(self.config), self.space, n_basis)
        yield from reduce_again(accepted, B, self.config)

    def private_summary(
        self, policy: SitePolicy, replies: Sequence[Mapping[str, object]]
    ) -> PrivateSummary:
        from cape.data.subjects import subject_matrix
        from cape.report.private_folder import Check, PrivateSummary, SubjectFacts

        data, config = self._data(), self.config

        def voxels() -> Iterator[tuple[str, Data]]:
            # Stops if files cannot be read again: the run is over, and a failure of the site's
            # pictures must not lose its results.
            for k, subject in enumerate(data.subjects):
                self.on_subject("report", k)
                try:
                    yield subject.label, subject_matrix(subject, data.space, config)
                except (DataError, OSError):
                    return

        files_of = dict(zip(data.listed, data.files, strict=True))
        subjects = tuple(
            SubjectFacts(
                label=subject.label,
                runs=_runs_of(subject),
                files=tuple(run.name for run in subject.runs),
                n_timepoints=subject.n_timepoints,
                tr=subject.trs[0] if len(set(subject.trs)) == 1 else 0.0,
                coverage=subject.quality.coverage,
                rank=subject.rank,
                grid=subject.grid,
                mean_fd=subject.mean_fd,
                n_scrubbed=subject.n_scrubbed,
                minutes=subject.seconds / 60,
                tsnr=subject.quality.tsnr,
            )
            for subject in data.subjects
        )
        checks = [Check(code=f.code, severity=f.severity, text=f.private) for f in data.findings]
        fields = dataclasses.asdict(policy)
        digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
        return PrivateSummary(
            subjects=subjects,
            failed={label: files_of[label] for label in data.failed},
            counted=self.counted,
            checks=tuple(checks),
            policy={**fields, "digest": digest},
            sent=tuple(replies),
            voxels=voxels,
        )


def _runs_of(subject: Subject) -> tuple[RunFacts, ...]:
    from cape.data.bids import names_of_runs
    from cape.report.derivatives import RunFacts

    # Runs are concatenated: first and last volume of each.
    ends = np.cumsum((0, *subject.n_volumes)).tolist()
    out = np.array(subject.left_out, dtype=int)
    each = zip(names_of_runs(subject.runs), subject.trs, pairwise(ends), strict=True)
    return tuple(
        RunFacts(
            session=session,
            entities=entities,
            tr=tr,
            n_volumes=end - start,
            left_out=tuple((out[(start <= out) & (out < end)] - start).tolist()),
        )
        for (session, entities), tr, (start, end) in each
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ArraySource:
    """Subjects in memory that went through the checks of files."""

    site: SiteData
    config: Config
    stated: frozenset[str] = frozenset()  # labels that names of files or lists state

    @classmethod
    def of(
        cls,
        people: Sequence[Person],
        space: FeatureSpace,
        config: Config,
        findings: Findings,
        *,
        stated: frozenset[str] = frozenset(),
    ) -> Self:
        """Check the people of a site as `load_site` does; `findings`: of their names.

        DataError if nobody passes, or more than half fail.
        """
        from cape.data.discovery import SiteListing
        from cape.data.pipeline import SitePass, accepted_site, accepted_subjects, conclude

        site = findings.site
        listing = SiteListing(site=site, config=config, listed=tuple(people), space=space)
        found = SitePass(listing, findings)
        for _ in accepted_subjects(found):
            pass
        inspection = conclude(found)
        if (stopped := inspection.error) is not None:
            stopped.explain(file=False)  # there is no site-error.txt, and the caller has the data
        accepted = accepted_site(inspection)
        if not accepted.subjects:
            detail = "\n".join(finding.private for finding in accepted.findings)
            stop = DataError("E100", site=site, detail=detail)
            stop.explain(file=False)
            raise stop
        return cls(site=accepted, config=config, stated=stated)

    @property
    def notice(self) -> str:
        """All findings, for the caller, who has the data; "" without any."""
        findings = (f"site {self.site.site}: {finding.private}" for finding in self.site.findings)
        return "\n".join(findings)

    @property
    def contents(self) -> str:
        """Fingerprint of the accepted arrays."""
        return self.site.fingerprint

    @property
    def people(self) -> list[ListedPerson]:
        """Labels and digests; an array has the label of its place in the list."""
        return listed_people(self.site, self.config)

    @property
    def counted(self) -> CountedPeople:
        return self.site.counting(self.config)

    @property
    def space(self) -> FeatureSpace:
        return self.site.space

    @property
    def n_subjects(self) -> int:
        return self.site.n_subjects

    def reduced(self, n_basis: int) -> Iterator[tuple[str, Data]]:
        from cape.data.pipeline import reduce_again

        B = public_basis(resolve(self.config), self.space, n_basis)
        yield from reduce_again(self.site, B, self.config)
