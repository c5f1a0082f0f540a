"""What the private page of a site tells of its subjects, from the site's accepted data."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

from cape.algorithms.estimators import Data
from cape.config import Config
from cape.data import SiteData, subject_matrix
from cape.errors import DataError
from cape.report.private_summary import Check, PrivateSummary, SubjectFacts
from cape.site.policy import SitePolicy


def summarize_site(
    data: SiteData, config: Config, policy: SitePolicy, sent: Sequence[Mapping[str, object]]
) -> PrivateSummary:
    """Return subjects, findings, policy and replies of a site in the form of the page.

    Parameters
    ----------
    data : SiteData
        Accepted subjects and findings.
    config : Config
        Settings of the run.
    policy : SitePolicy
        In force at this site.
    sent : sequence of mapping
        One line per reply.
    """

    def voxels() -> Iterator[tuple[str, Data]]:
        """Yield the subjects; stop where files cannot be read again.

        The run is over and its budget spent: a site's own pictures must not cost the results.
        """
        for subject in data.subjects:
            try:
                yield subject.label, subject_matrix(subject, data.space, config)
            except (DataError, OSError):
                return

    subjects = tuple(
        SubjectFacts(
            label=subject.label,
            files=tuple(run.name for run in subject.runs),
            n_timepoints=subject.n_timepoints,
            tr=subject.trs[0] if len(set(subject.trs)) == 1 else 0.0,
            coverage=subject.quality.coverage,
            rank=subject.rank,
            grid=subject.grid,
        )
        for subject in data.subjects
    )
    checks = tuple(Check(code=f.code, severity=f.severity, text=f.private) for f in data.findings)
    return PrivateSummary(
        subjects=subjects,
        excluded=data.excluded,
        checks=checks,
        policy={**dataclasses.asdict(policy), "digest": digest_of(policy)},
        sent=tuple(sent),
        voxels=voxels,
    )


def digest_of(policy: SitePolicy) -> str:
    """Return the SHA-256 of a policy, by which two sites can compare theirs."""
    text = json.dumps(dataclasses.asdict(policy), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
