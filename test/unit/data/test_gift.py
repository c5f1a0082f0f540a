"""GIFT's results of all people of a site: whose each row is, and what is refused."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from cape.algorithms.person_outcomes import domain_means, log_band_power
from cape.computations.capecontrast import CapeContrastConfig
from cape.data.gift import read_gift, read_gift_names
from cape.data.issues import IssueCode, UnusableFile
from cape.errors import CapeError, ConfigError, DataError, SubjectsWarning
from cape.settings.measures import Measure, MeasureKind
from cape.site.site_data import FileSource
from support import consortium as helper
from support.simulation import simulate

RNG = np.random.default_rng(6)
FILE = "gica_postprocess_results.mat"
NAMES = "gica_postprocess_results.tsv"
N, S, R, F = 4, 2, 3, 129
NETWORKS = ("a", "b", "c")
GIVEN: dict[str, Any] = {
    "epsilon": 8.0, "delta": 1e-5, "variables": "dx control/patient, age 18:90",
    "formula": "dx + age", "public": "dx", "outcomes": "fnc", "outcomes_from": "gift",
    "networks": "a, b, c",
}  # fmt: skip


def config_of(**changed: Any) -> CapeContrastConfig:
    return CapeContrastConfig.from_input({**GIVEN, **changed})


def connectivity(n: int = N) -> np.ndarray:
    """As GIFT has it: symmetric, Fisher z, 0 on the diagonal."""
    z = 0.2 * RNG.standard_normal((n, S, R, R))
    z = z + z.swapaxes(2, 3)
    z[:, :, range(R), range(R)] = 0.0
    return z


def written(folder: Path, names: str = "", /, **variables: np.ndarray) -> Path:
    savemat(folder / FILE, {"kurt_comp": {"tc": np.ones((N, S, R))}, **variables})
    names = names or "participant_id\n" + "".join(f"sub-{m}\n" for m in range(1, N + 1))
    (folder / NAMES).write_text(names)
    return folder / FILE


def values_of(path: Path, kind: MeasureKind = "fnc") -> np.ndarray:
    measure = Measure(kind=kind, networks=NETWORKS, domains=("x", "x", "y"))
    return read_gift(path, measure, len(read_gift_names(path)))


def refused(path: Path, kind: MeasureKind = "fnc") -> tuple[IssueCode, str]:
    with pytest.raises(UnusableFile) as stop:
        values_of(path, kind)
    assert stop.value.issue.code.severity == "E"  # before anything is charged
    return stop.value.issue.code, stop.value.issue.observed


def test_edges_are_means_over_sessions_and_domains_of_edges(tmp_path: Path) -> None:
    z = connectivity()
    path = written(tmp_path, fnc_corrs_all=z)
    edges = z.mean(axis=1)[:, [0, 0, 1], [1, 2, 2]]
    assert read_gift_names(path) == ("sub-1", "sub-2", "sub-3", "sub-4")
    np.testing.assert_allclose(values_of(path), edges, rtol=1e-12)
    means = [domain_means(one, ("x", "x", "y")) for one in edges]
    np.testing.assert_allclose(values_of(path, "domains"), means, rtol=1e-12)


def test_a_file_without_sessions_or_with_one_person_is_read(tmp_path: Path) -> None:
    z = connectivity()[:, 0]
    np.testing.assert_allclose(values_of(written(tmp_path, fnc_corrs_all=z))[:, 0], z[:, 0, 1])
    path = written(tmp_path, "participant_id\nsub-9\n", fnc_corrs_all=z[2])
    assert read_gift_names(path) == ("sub-9",)
    np.testing.assert_allclose(values_of(path)[0], z[2][[0, 0, 1], [1, 2, 2]], rtol=1e-12)


def test_of_matlab_7_3_axes_come_in_matlab_s_order(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    z = connectivity()
    expected = values_of(written(tmp_path, fnc_corrs_all=z))
    with h5py.File(tmp_path / FILE, "w", userblock_size=512) as file:
        file.create_dataset("fnc_corrs_all", data=z.T)
    with (tmp_path / FILE).open("r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file")
    np.testing.assert_array_equal(values_of(tmp_path / FILE), expected)


def test_power_is_the_part_of_each_band(tmp_path: Path) -> None:
    """Flat spectra up to .25 Hz: .36 below .1 Hz, as of white courses."""
    freq = np.linspace(0.0, 0.25, F)
    flat = np.full((N, S, F, R), 1.0 / F)
    flat[1, 1, 5, 2] = np.nan
    found = values_of(written(tmp_path, spectra_tc_all=flat, freq=freq), "power")
    white = log_band_power(RNG.standard_normal((R, 20_000)), 2.0, ((0.01, 0.1), (0.1, 0.25)))
    assert found.shape == (N, 2 * R)
    np.testing.assert_allclose(found[0], white.ravel(), atol=0.03)
    assert np.isnan(found[1]).any()
    assert np.isfinite(found[[0, 2, 3]]).all()


def test_order_alone_is_never_believed(tmp_path: Path) -> None:
    path = written(tmp_path, fnc_corrs_all=connectivity())
    (tmp_path / NAMES).unlink()
    assert refused(path) == (IssueCode.GIFT_NAMES, f"no {NAMES}")
    (tmp_path / NAMES).write_text("participant_id\tage\nsub-1\t3\n\t4\n")
    assert refused(path) == (IssueCode.GIFT_NAMES, "a row without a name")


@pytest.mark.parametrize(
    ("variables", "kind", "observed"),
    [
        ({"fnc_corrs_all": np.ones((3, S, R, R))}, "fnc", "fnc_corrs_all is 3 x 2 x 3 x 3"),
        ({"fnc_corrs_all": np.ones((N, S, 5, 5))}, "fnc", "fnc_corrs_all is 4 x 2 x 5 x 5"),
        ({"fnc_corrs_all": np.ones((N, R))}, "fnc", "fnc_corrs_all is 4 x 3"),
        ({"fnc_corrs_all": np.ones((N, 0, R, R))}, "fnc", "fnc_corrs_all is 4 x 0 x 3 x 3"),
        ({"fnc_corrs_all": np.ones((N, S, R, R), complex)}, "fnc", "no array of real numbers"),
        ({"other": np.ones((N, S, R, R))}, "fnc", "other (4, 2, 3, 3)"),
        ({"spectra_tc_all": np.ones((N, S, R, F)), "freq": np.ones(F)}, "power", "4 x 2 x 3 x 129"),
    ],
)
def test_a_file_that_does_not_fit_stops_its_site(tmp_path, variables, kind, observed):
    code, got = refused(written(tmp_path, **variables), kind)
    assert code is IssueCode.GIFT_FILE
    assert observed in got


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"outcomes": "falff"}, "fnc, domains, power with outcomes_from=gift"),
        ({"outcomes": "volume 1:10"}, "fnc, domains, power with outcomes_from=gift"),
        ({"outcomes_from": FILE}, "auto, gift"),
        ({"networks": ""}, "networks"),
        ({"outcomes": "domains"}, "domain of a"),
        ({"change": "1, 2"}, "session_id"),
    ],
)
def test_settings_that_gift_s_file_cannot_answer_are_refused(changed: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config_of(**changed)


def study(folder: Path, sizes: tuple[int, ...] = (60, 70, 80), effect: float = 0.5) -> Path:
    """Sites whose patients differ by `effect` (Fisher z) in the edge of the first two components.

    GIFT's order is another one than that of participants.tsv; somebody has no numbers.
    """
    for s, n in enumerate(sizes):
        place = folder / f"site{s}"
        place.mkdir(parents=True)
        case, age = RNG.permutation(n) < n // 2, 50 + 10 * RNG.standard_normal(n)
        z = connectivity(n)
        z[:, :, 0, 1] += effect * case[:, None]
        z[:, :, 1, 0] += effect * case[:, None]
        z[7, 1] = np.nan
        order = RNG.permutation(n)
        names = "participant_id\n" + "".join(f"sub-{m:03d}\n" for m in order)
        written(place, names, fnc_corrs_all=z[order])
        rows = [
            f"sub-{m:03d}\t{('control', 'patient')[int(case[m])]}\t{age[m]:.1f}" for m in range(n)
        ]
        table = "\n".join(["participant_id\tdx\tage", *rows]) + "\n"
        (place / "participants.tsv").write_text(table)
    return folder


def test_a_planted_difference_is_found_in_another_order(tmp_path: Path) -> None:
    chosen = {"computation": "capecontrast", **GIVEN}
    with helper.without_pages(), pytest.warns(SubjectsWarning) as told:
        simulate(study(tmp_path / "s"), out=tmp_path / "o", settings=chosen, seed=3)
    assert [
        str(one.message).partition(" (")[0] for one in told if "people count" in str(one.message)
    ] == [f"Site site{k}: {n - 1} of {n} people count" for k, n in enumerate((60, 70, 80))]
    lines = (tmp_path / "o" / "consortium" / "effects.tsv").read_text().splitlines()
    rows = [dict(zip(lines[0].split("\t"), line.split("\t"), strict=True)) for line in lines[1:]]
    assert [row["outcome"] for row in rows] == ["a - b", "a - c", "b - c"]
    assert abs(float(rows[0]["estimate"]) - 0.5) < 0.12
    assert float(rows[0]["p"]) < 1e-3
    assert min(float(row["p"]) for row in rows[1:]) > 0.01


def test_who_has_no_numbers_adds_zeros_and_stays(tmp_path: Path) -> None:
    source = FileSource(study(tmp_path, (20,)) / "site0", {}, config_of(), "A")
    assert source.n_subjects == 20
    rows = list(source.reduced(R))
    assert [row.shape for _, row in rows] == 20 * [(3 + 1 + 2, 1)]
    assert [label for label, row in rows if np.isnan(row[:3]).all()] == ["sub-007"]
    assert source.notice.startswith("Site A: 19 of 20 people count (1: no outcome).")
    assert {person.files for person in source.people} == {()}


def test_exclude_beside_a_name_leaves_out_a_row(tmp_path: Path) -> None:
    place = study(tmp_path, (20,)) / "site0"
    lines = (place / NAMES).read_text().splitlines()
    marked = [f"{lines[0]}\texclude", f"{lines[1]}\t1", *(f"{line}\t" for line in lines[2:])]
    (place / NAMES).write_text("\n".join(marked))
    labels = [label for label, _ in FileSource(place, {}, config_of(), "A").reduced(R)]
    assert len(labels) == 19
    assert lines[1] not in labels


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("names", f"a table {NAMES} beside them"),
        ("people", "21 names x"),
        ("file", "no *_postprocess_results.mat"),
        ("second", f"{FILE}, other_postprocess_results.mat"),
    ],
)
def test_a_site_stops_before_anything_is_charged(tmp_path: Path, broken: str, said: str) -> None:
    place = study(tmp_path / "s", (20, 20, 20)) / "site1"
    if broken == "names":
        (place / NAMES).unlink()
    elif broken == "people":
        with (place / NAMES).open("a") as file:
            file.write("sub-999\n")
    elif broken == "file":
        (place / FILE).unlink()
    else:
        shutil.copy(place / FILE, place / "other_postprocess_results.mat")
    chosen = {"computation": "capecontrast", **GIVEN}
    with helper.without_pages(), pytest.raises(CapeError, match=r"E13[89]"):
        simulate(tmp_path / "s", out=tmp_path / "o", settings=chosen, seed=3)
    with pytest.raises(DataError) as own:
        FileSource(place, {}, config_of(), "A").n_subjects  # noqa: B018
    assert said in str(own.value.detail)
    assert not {NAMES, FILE, "21"} & {*str(own.value).split()}  # nobody else is told
    assert not list((tmp_path / "o").rglob("ledger.json"))
