"""GIFT's results of all people of a site, `*_postprocess_results.mat`, as rows of outcomes.

Shapes are those of its `icatb_postprocess_timecourses`: ``fnc_corrs_all`` (people, sessions, R, R)
in Fisher z, ``spectra_tc_all`` (people, sessions, F, R) and ``freq`` (F) in Hz.  Other
programs may write no axis of sessions, and GIFT drops both first axes for one person and session.

GIFT keeps no names.  By order alone a patient could silently take the place of a control, so the
site names the rows in a table beside the file.
"""

from pathlib import Path
from typing import Final

import numpy as np

from cape.algorithms.estimators import Array
from cape.algorithms.person_outcomes import domain_means, log_shares
from cape.data.issues import IssueCode, UnusableFile
from cape.data.matrices import read_variable
from cape.data.tables import places_of, rows_of_people
from cape.settings.measures import POWER_BANDS, Measure

CONNECTIVITY: Final = "fnc_corrs_all"
SPECTRA: Final = "spectra_tc_all"
FREQUENCIES: Final = "freq"


def names_beside(table: str) -> str:
    """Return the name of the table that assigns the rows of GIFT's results to people."""
    return table.removesuffix(".mat") + ".tsv"


def read_gift_names(path: Path) -> tuple[str, ...]:
    """Return whose each row of GIFT's results `path` is; `UnusableFile`, OSError."""
    names = path.with_name(names_beside(path.name))
    if not names.is_file():
        raise UnusableFile(IssueCode.GIFT_NAMES, f"no {names.name}", names=names.name)
    # By its order the table says whose each row is, so that a broken row is one of the table.
    header, rows = rows_of_people(names)
    person, _ = places_of(header, ())
    labels = tuple(row.cell(person) for row in rows)
    if not all(labels):
        raise UnusableFile(IssueCode.GIFT_NAMES, "a row without a name", names=names.name)
    return labels


def read_gift(path: Path, measure: Measure, n: int) -> Array:
    """Return the outcomes (n, K) of all people, in natural units; `UnusableFile`, OSError.

    A fault of the file stops the site; a person's numbers never do.
    """
    with np.errstate(all="ignore"):  # a person without finite numbers adds zeros
        return _outcomes(path, measure, n)


def _outcomes(path: Path, measure: Measure, n: int) -> Array:
    content, R = path.read_bytes(), len(measure.networks)
    if measure.kind == "power":
        frequency = _variable(content, FREQUENCIES).ravel()
        power = _of_people(content, SPECTRA, n, (frequency.size, R))
        return np.stack(
            [log_shares(spectra.T, frequency, POWER_BANDS).ravel() for spectra in power]
        )
    rows, columns = np.triu_indices(R, 1)
    z = _of_people(content, CONNECTIVITY, n, (R, R))[:, rows, columns]
    if measure.kind == "domains":
        return np.stack([domain_means(edges, measure.domains) for edges in z])
    return z


def _of_people(content: bytes, name: str, n: int, each: tuple[int, int]) -> Array:
    """Return the mean of a variable over sessions, (n, *own); NaN if one session is NaN."""
    values = _variable(content, name)
    if values.ndim == 2 and n == 1:
        values = values[None]
    if (
        values.ndim not in (3, 4)
        or 0 in values.shape
        or (n, *each) != (len(values), *values.shape[-2:])
    ):
        shape = " x ".join(map(str, values.shape))
        raise _unusable(f"{name} is {shape}", f"{n} names x sessions x {each[0]} x {each[1]}")
    return values.mean(axis=1) if values.ndim == 4 else values


def _variable(content: bytes, name: str) -> Array:
    try:
        values = read_variable(content, name)
    except UnusableFile as verdict:
        raise _unusable(verdict.issue.observed, f"a whole file with {name}") from verdict
    if values.dtype.kind not in "iuf":
        raise _unusable(f"{name} is no array of real numbers", "real numbers")
    return values.astype(np.float64)


def _unusable(observed: str, wanted: str) -> UnusableFile:
    return UnusableFile(IssueCode.GIFT_FILE, observed, wanted=wanted)
