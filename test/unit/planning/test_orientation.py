"""Which axis of tables is time, by names and by what differs between people."""

from __future__ import annotations

import pytest

from cape.errors import ConfigError
from cape.planning.orientation import orientation_of, refuse

PLAIN = ["sub-1.csv", "sub-2.csv", "sub-3.csv", "sub-4.csv"]
EQUAL = [(200, 90)] * 4
BY_TIME, BY_FEATURE = "time_by_feature", "feature_by_time"


@pytest.mark.parametrize(
    ("names", "shapes", "columns", "n_features", "expected"),
    [
        (PLAIN, EQUAL, ("L_insula", "R_insula"), 0, BY_TIME),
        (PLAIN, EQUAL, ("ROI1", "ROI2"), 0, BY_TIME),
        (PLAIN, EQUAL, ("t1", "t2"), 0, BY_FEATURE),
        (["ROISignals_1.mat", "ROISignals_2.mat"], EQUAL[:2], (), 0, BY_TIME),
        (["KKI_0050772_rois_aal.1D"], EQUAL[:1], (), 0, BY_TIME),
        (PLAIN, [(200, 90), (180, 90), (200, 90), (210, 90)], (), 0, BY_TIME),
        (PLAIN, [(90, 200), (90, 180), (90, 200), (90, 210)], (), 0, BY_FEATURE),
        # An atlas says how many regions there are.
        (PLAIN, EQUAL, (), 90, BY_TIME),
        (PLAIN, EQUAL, (), 200, BY_FEATURE),
        # Nothing says it.
        (PLAIN, EQUAL, (), 0, None),
        (PLAIN, EQUAL, ("1", "2"), 0, None),
        (PLAIN, EQUAL, (), 94, None),
        (PLAIN, [(90, 90)] * 4, (), 90, None),
        (PLAIN, [(200, 90), (180, 80)], (), 0, None),
        # One file of eight is odd: it may lack a region as well as time points.
        (PLAIN * 2, [(200, 90)] * 7 + [(200, 89)], (), 0, None),
        # Names and sizes contradict each other.
        (PLAIN, [(200, 90), (180, 90), (200, 90), (210, 90)], ("t1", "t2"), 0, None),
    ],
)  # fmt: skip
def test_names_and_sizes(names, shapes, columns, n_features, expected):
    def found(said, seen):
        return said

    what = names, shapes, columns
    assert orientation_of(*what, ask=found, n_features=n_features) == expected
    if expected is None:
        with pytest.raises(ConfigError, match="--orientation time_by_feature"):
            orientation_of(*what, ask=refuse, n_features=n_features)
