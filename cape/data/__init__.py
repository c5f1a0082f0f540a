"""The data of a site: finding files, checking them, and one subject at a time as a matrix.

Not here: scaling, noise, anything that looks at two subjects together.  nibabel is imported only
when an image is opened.
"""

from cape.data.checks import Subject
from cape.data.files import RunFile, SubjectFiles, discover
from cape.data.findings import Finding, Findings
from cape.data.site import (
    Inspection,
    SiteData,
    inspect_site,
    load_site,
    reduce_to_basis,
)
from cape.data.space import Grid, grid_of, mask_space
from cape.data.subjects import project, subject_matrix

__all__ = [
    "Finding",
    "Findings",
    "Grid",
    "Inspection",
    "RunFile",
    "SiteData",
    "Subject",
    "SubjectFiles",
    "discover",
    "grid_of",
    "inspect_site",
    "load_site",
    "mask_space",
    "project",
    "reduce_to_basis",
    "subject_matrix",
]
