"""The data of a site: discover, read, check, clean, project; no two subjects meet (`pipeline`)."""

from cape.data.checks import Subject
from cape.data.issues import Finding, Findings, IssueCode
from cape.data.pipeline import (
    Inspection,
    SiteData,
    inspect_site,
    load_site,
    project,
    reduce_again,
    subject_matrix,
)
from cape.data.runs import RunFile, SubjectFiles
from cape.data.space import Grid, grid_of, mask_space

__all__ = [
    "Finding",
    "Findings",
    "Grid",
    "Inspection",
    "IssueCode",
    "RunFile",
    "SiteData",
    "Subject",
    "SubjectFiles",
    "grid_of",
    "inspect_site",
    "load_site",
    "mask_space",
    "project",
    "reduce_again",
    "subject_matrix",
]
