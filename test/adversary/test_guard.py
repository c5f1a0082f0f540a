"""Arithmetic on people's data: nobody's number ends a site, or writes a line of its log.

A range of 5e-324 has a unit of 0: the site ended exactly if somebody had a number there, which told
one bit of that person for nothing.  What is tried is every computation, not that range.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from cape.computations import load, names
from cape.errors import ConfigError
from support import consortium as helper

EXTREME = (np.nan, np.inf, -1e308, 1e300, 5e-324, 1e-200, 3.5e38, 0.0)
UNITS: Mapping[str, list[dict[str, object]]] = {
    "capemean": [{"low": low, "high": high} for low, high in (
        (0.0, 5e-324), (0.0, 1e-300), (-1.7e308, 1.7e308), (1e300, 1.0000000001e300),
        (1e17, 1.0000000000000002e17))],
    "capecca": [{"x_low": 0.0, "x_high": 5e-324}, {"y_low": -1.7e308, "y_high": 1.7e308},
                {"bounds": "1:0:5e-324"}, {"bounds": "1:1e300:1.0000000001e300"}],
    "capecontrast": [{"outcomes": "volume 0:5e-324, score -2:2"},
                     {"outcomes": "volume -1e308:1e308, score -2:2"},
                     {"outcomes": "volume 1e300:1.0000000001e300, score -2:2"},
                     {"variables": "dx control/patient, age 1e17:1.00000000000000064e17"},
                     {"variables": "dx control/patient, age 0:5e-324"}],
}  # fmt: skip
UNITS = {**UNITS, "papermean": UNITS["capemean"]}


PLACES = ((0, 0), (0, slice(None)), slice(None))  # a number, a row, everything


def with_extremes() -> dict[str, list[np.ndarray]]:
    """Return the data of three sites; people of the first have one extreme number each."""
    data = helper.datasets()
    people = []
    for value in EXTREME:
        for place in PLACES:
            people.append(data["local0"][0].copy())
            people[-1][place] = value
    return {**data, "local0": [*people, *data["local0"]]}


def check_answers(run: helper.Consortium) -> None:
    """Every exchange is answered, whatever a caller lets NumPy do about its warnings."""
    while not run.ended:
        with warnings.catch_warnings(), np.errstate(all="raise"):
            warnings.simplefilter("error")
            inbox = run.answers()
        run.go_on(run.combine(inbox))


@pytest.mark.parametrize("name", names())
def test_no_number_of_a_person_ends_a_site(name: str) -> None:
    check_answers(helper.Consortium(name, with_extremes()))


@pytest.mark.parametrize("cell", ["1e308", "-1e308", "5e-324", "inf", "nan", "1e400", "0"])
def test_no_cell_of_a_table_ends_a_site(tmp_path: Path, cell: str) -> None:
    data = helper.datasets()
    helper.write_data(tmp_path, data, "capecontrast")
    table = tmp_path / "local0" / "participants.tsv"
    head, first, *rest = table.read_text().splitlines()
    person, dx, *_ = first.split("\t")
    table.write_text("\n".join([head, "\t".join([person, dx, cell, cell, cell]), *rest, ""]))
    run = helper.Consortium(
        "capecontrast", data, folder=tmp_path, outcomes="volume -2:2, log(score) 1e-9:3e9"
    )
    check_answers(run)


@pytest.mark.parametrize(
    ("name", "chosen"), [(name, chosen) for name in UNITS for chosen in UNITS[name]]
)
def test_a_range_whose_unit_vanishes_or_overflows_is_refused(name, chosen) -> None:
    with pytest.raises(ConfigError, match="E011"):
        load(name).config.from_input({**helper.settings_of(name), **chosen})
