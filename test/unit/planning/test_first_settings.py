"""``cape init``: a folder becomes settings that its owner can read; what is open is asked."""

import json
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape.cli import main
from cape.data.issues import Findings
from cape.data.people import read_people
from cape.data.templates import maps_with_names
from cape.errors import ConfigError
from cape.planning.consortium_folder import read_settings
from cape.planning.first_settings import InitOptions, propose
from cape.planning.public_maps import lines_of_maps, of_maps, proposed_question
from cape.planning.run_headers import MOTION
from cape.settings.measures import outcome_names
from cape.settings.question import parse_measure
from test.support.surfaces import axis, parcels, write_cifti, write_owner_files

COLUMNS = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z", "framewise_displacement")
N_TIMES, PEOPLE, SHAPE = 50, ("1", "2", "3"), (17, 20, 17)
AFFINE = np.array([[-10.0, 0, 0, 80], [0, 10, 0, -115], [0, 0, 10, -70], [0, 0, 0, 1]])


def image(path: Path, *, code: int = 2, n_times: int = N_TIMES, moved: float = 0.0) -> Path:
    """Write a series on a grid of 10 mm that holds the whole brain."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([*map(ord, str(path))])
    values = rng.integers(900, 1100, (*SHAPE, n_times))
    brain = nib.Nifti1Image(values.astype(np.int16), AFFINE + moved * np.eye(4, k=3))
    brain.set_sform(brain.affine, code)
    brain.header.set_zooms((10, 10, 10, 2.0))
    brain.header.set_xyzt_units("mm", "sec")
    brain.to_filename(path)
    return path


def atlas(base: Path, n_parcels: int = 30) -> None:
    values = np.zeros(SHAPE, np.int16)
    for k in range(n_parcels):
        values[3 + k % 10, 4 + 4 * (k // 10) : 8 + 4 * (k // 10), 6:10] = k + 1
    label_image = nib.Nifti1Image(values, AFFINE)
    label_image.set_sform(AFFINE, 4)
    base.mkdir(parents=True, exist_ok=True)
    label_image.to_filename(base / "atlas.nii.gz")


def table(path: Path, names: list[str], n_times: int = N_TIMES) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = np.random.default_rng([*map(ord, str(path))]).standard_normal((n_times, len(names)))
    cut = "," if path.suffix == ".csv" else "\t"
    np.savetxt(path, rows, delimiter=cut, header=cut.join(names), comments="")
    return path


def run(
    base: Path,
    label: str,
    space: str = "MNI152NLin2009cAsym",
    *,
    task: str = "rest",
    tr: float = 2.0,
    more: str = "_desc-preproc",
    n_times: int = N_TIMES,
) -> None:
    """Write a run as fMRIPrep does; only its header is read, so it is small."""
    stem = base / label / "func" / f"{label}_task-{task}"
    stem.parent.mkdir(parents=True, exist_ok=True)
    for name in space.split("+"):
        small = nib.Nifti1Image(np.zeros((3, 4, 3, n_times), np.int16), np.diag([8.0, 8, 8, 1]))
        small.to_filename(f"{stem}_space-{name}{more}_bold.nii.gz")
        Path(f"{stem}_space-{name}{more}_bold.json").write_text(json.dumps({"RepetitionTime": tr}))
    confounds(Path(f"{stem}_desc-confounds_timeseries.tsv"))


def confounds(path: Path, names: tuple[str, ...] = COLUMNS) -> None:
    rows = ["\t".join(names), *["\t".join("0" * len(names))] * N_TIMES]
    path.write_text("\n".join(rows) + "\n")


def settings(folder: Path, **options: str) -> tuple[dict[str, object], str]:
    proposal = propose(InitOptions(folder=folder, **options))
    return tomllib.loads(proposal.text), "\n".join(proposal.counts)


def question(folder: Path, **options: str) -> tuple[str, list[list[str]]]:
    """Return what `init` asks, and the commands that answer it."""
    with pytest.raises(ConfigError, match="E018") as asked:
        propose(InitOptions(folder=folder, **options))
    lines = [line.partition("  (")[0].strip() for line in str(asked.value).splitlines()]
    return str(asked.value), [shlex.split(line)[1:] for line in lines if line.startswith("cape ")]


# -- what init proposes, validate accepts --------------------------------------------------------

Written = Callable[[Path], list[str]]


def of_fmriprep(base: Path) -> list[str]:
    for label in PEOPLE:
        place = base / f"sub-{label}" / "ses-1" / "func"
        stem = place / f"sub-{label}_ses-1_task-rest_run-1"
        image(Path(f"{stem}_space-MNI152NLin2009cAsym_desc-preproc_bold.nii.gz"))
        image(Path(f"{stem}_space-MNI152NLin2009cAsym_boldref.nii.gz"), n_times=1)
        rng = np.random.default_rng(int(label))
        rows = rng.standard_normal((N_TIMES, len(COLUMNS))).astype(str)
        lines = ["\t".join(COLUMNS), *("\t".join(row) for row in rows)]
        Path(f"{stem}_desc-confounds_timeseries.tsv").write_text("\n".join(lines) + "\n")
    return []


def of_xcpd(base: Path) -> list[str]:
    for label in PEOPLE:
        stem = base / f"sub-{label}" / "func" / f"sub-{label}_task-rest_space-MNI152NLin2009cAsym"
        for desc in ("denoised", "denoisedSmoothed"):
            image(Path(f"{stem}_desc-{desc}_bold.nii.gz"))
        table(Path(f"{stem}_seg-Gordon_stat-mean_timeseries.tsv"), ["a", "b", "c"])
    return ["--filter", "task-rest_space-MNI152NLin2009cAsym_desc-denoised"]


def of_xcpd_tables(base: Path) -> list[str]:
    of_xcpd(base)
    for path in base.rglob("*_seg-Gordon_*"):
        table(path.with_name(path.name.replace("Gordon", "Tian")), ["a", "b", "c", "d"])
    chosen = "task-rest_space-MNI152NLin2009cAsym_seg-Tian"
    return ["--filter", chosen, "--orientation", "time_by_feature"]


def of_cifti(base: Path, *, dense: bool) -> list[str]:
    columns, end = (axis(2), "dtseries") if dense else (parcels(2, 5), "ptseries")
    write_owner_files(base, columns, 2)
    next(base.glob("structure.*")).unlink()
    rng = np.random.default_rng([*map(ord, str(base))])
    for label in PEOPLE:
        place = base / f"sub-{label}" / "func"
        name = f"sub-{label}_task-rest_space-fsLR_den-91k_bold.{end}.nii"
        write_cifti(place / name, 100 + rng.standard_normal((len(columns), N_TIMES)), columns)
    return []


def of_layout(base: Path) -> list[str]:
    for label in PEOPLE:
        image(base / f"ann{label}" / "rest.nii.gz", code=4)
    (base / "site-policy.toml").write_text('layout = "{subject}/rest.nii.gz"\n')
    return []


def of_layout_unstated(base: Path) -> list[str]:
    """Images that name no space, on one grid that holds the brain."""
    for label in PEOPLE:
        image(base / f"swraS{label}_rest.nii")
    (base / "site-policy.toml").write_text('layout = "swra{subject}_rest.nii"\n')
    return []


def of_own_mask(base: Path) -> list[str]:
    """Images of no template, with the mask of their space in the folder."""
    for label in PEOPLE:
        image(base / f"sub-{label}_space-Fetal_bold.nii.gz")
    inside = np.zeros(SHAPE, np.uint8)
    inside[3:14, 3:17, 3:14] = 1
    mask = nib.Nifti1Image(inside, AFFINE)
    mask.set_sform(AFFINE, 2)
    mask.to_filename(base / "mask.nii.gz")
    return []


def of_manifest(base: Path) -> list[str]:
    rows = ["participant_id,file,exclude"]
    for n, label in enumerate((*PEOPLE, "4")):
        image(base / "scans" / f"x{label}.nii.gz", code=4)
        rows.append(f"S{label},scans/x{label}.nii.gz,{int(n == 3)}")
    (base / "manifest.csv").write_text("\n".join(rows) + "\n")
    return []


def of_parcels(base: Path) -> list[str]:
    """Tables that XCP-D writes, the parcels of which the table of the atlas names."""
    atlas(base)
    rows = ("index\tname", *(f"{k + 1}\tArea {k + 1}" for k in range(30)))
    (base / "atlas.tsv").write_text("\n".join(rows) + "\n")
    for label in PEOPLE:
        name = f"sub-{label}_task-rest_space-MNI152NLin6Asym_seg-Tian_stat-mean_timeseries.tsv"
        table(base / f"sub-{label}" / "func" / name, [f"Area {k + 1}" for k in range(30)])
    return ["--orientation", "time_by_feature"]


def of_atlas(base: Path) -> list[str]:
    atlas(base)
    for label in PEOPLE:
        image(base / f"sub-{label}_task-rest_bold.nii.gz")
    return []


def of_matrices(base: Path) -> list[str]:
    base.mkdir(parents=True, exist_ok=True)
    for label in PEOPLE:
        rng = np.random.default_rng([*map(ord, str(base)), int(label)])
        np.save(base / f"sub-{label}.npy", rng.standard_normal((8, N_TIMES)))
    return ["--orientation", "feature_by_time"]


def of_headed_tables(base: Path) -> list[str]:
    for label in PEOPLE:
        table(base / f"sub-{label}.csv", ["dmn", "salience", "visual"])
    return ["--orientation", "time_by_feature"]


def of_records(base: Path) -> list[str]:
    base.mkdir(parents=True, exist_ok=True)
    rows = [f"p{m},{m}.5,{7 * m % 5},{m % 3}" for m in range(30)]
    (base / "records.csv").write_text("\n".join(("id,a,b,c", *rows)) + "\n")
    return []


def of_people(base: Path) -> list[str]:
    """Tables of people alone, with columns that are none of a comparison."""
    (base / "phenotype").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([*map(ord, str(base))])
    rows = [("participant_id", "dx", "age", "visited")]
    volumes = [("participant_id", "L_Hippocampus", "crp")]
    for m in range(40):
        rows.append((f"sub-{m}", ("SZ", "HC")[m % 2], f"{rng.integers(20, 60)}", "2024-03-01"))
        volumes.append((f"sub-{m}", f"{rng.integers(3000, 5000)}", f"{rng.random():.2f}"))
    for name, lines in (("participants", rows), ("phenotype/volumes", volumes)):
        (base / f"{name}.tsv").write_text("\n".join(map("\t".join, lines)) + "\n")
    return []


KINDS: dict[str, Written] = {
    "fMRIPrep": of_fmriprep,
    "XCP-D": of_xcpd,
    "tables of XCP-D": of_xcpd_tables,
    "CIFTI": lambda base: of_cifti(base, dense=True),
    "CIFTI parcels": lambda base: of_cifti(base, dense=False),
    "layout": of_layout,
    "layout, no space": of_layout_unstated,
    "own mask": of_own_mask,
    "manifest": of_manifest,
    "parcels": of_parcels,
    "atlas and images": of_atlas,
    "matrices": of_matrices,
    "headed tables": of_headed_tables,
    "records": of_records,
    "tables of people": of_people,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sites", ["lab", "lab/local0", "two"])
def test_what_init_proposes_validate_accepts(kind, sites, tmp_path, capsys):
    """One lab in a folder, one below a folder, and two sites."""
    data = tmp_path / ("lab" if sites.startswith("lab") else "two")
    options: list[str] = []
    for base in [tmp_path / sites] if data.name == "lab" else [data / "a", data / "b"]:
        options = KINDS[kind](base)
    assert main(["init", str(data), *options]) == 0, capsys.readouterr().err
    assert main(["validate", str(data)]) == 0, capsys.readouterr().out
    said = tomllib.loads((data / "settings.toml").read_text())
    assert (said["n_sites"], said["min_sites"]) == ((2, 2) if sites == "two" else (1, 1))
    budget = [word for pair in ("epsilon=3", "delta=1e-3") for word in ("--set", pair)]
    main(["validate", str(data), "--fast", *budget])
    told = capsys.readouterr().out
    assert "E152" not in told
    assert "E013" not in told


# -- which images --------------------------------------------------------------------------------


def test_sites_side_by_side_share_one_space_that_is_typed(tmp_path, capsys):
    for label in ("sub-1", "sub-2"):
        run(tmp_path / "a", label, "T1w+MNI152NLin6Asym+MNI152NLin2009cAsym")
        run(tmp_path / "b", label, "MNI152NLin6Asym", tr=2.5)
    text, ways = question(tmp_path)
    assert "8 files differ in space-" in text
    # Most people first, and which sites have it
    assert "space-MNI152NLin6Asym_desc-preproc  (4 people: a, b)" in text
    assert not (tmp_path / "settings.toml").exists()
    assert main(ways[0]) == 0
    said = tomllib.loads(text := (tmp_path / "settings.toml").read_text())
    assert said["bids_filter"] == "task-rest_space-MNI152NLin6Asym_desc-preproc"
    assert said["space"] == "MNI152NLin6Asym"
    assert said["computation"] == "capegica"
    assert "temporal ICA removed" in text  # why
    assert (said["n_sites"], said["site_names"], said["min_sites"]) == (2, "a,b", 2)
    assert said["tr"] == 0.0  # they differ
    counts = capsys.readouterr().out
    assert "a: 2 people\nnobody is left out: no column `exclude`" in counts
    assert "epsilon" not in said
    # What is counted in people's folders is no affair of the other sites.
    assert not any(part in text for part in ("2.5", "sub-"))
    assert read_settings(None, said).config.mask == "MNI152-8mm"  # not finer than the images


def test_each_answer_of_a_question_is_taken_as_it_is_typed(tmp_path, capsys):
    for label in ("sub-1", "sub-2"):
        run(tmp_path, label, "MNI152NLin6Asym+MNI152NLin2009cAsym")
        run(tmp_path, label, "MNI152NLin6Asym", task="nback")
    _, ways = question(tmp_path)
    assert len(ways) == 4  # with all tasks, joined
    for way in ways:
        assert main([*way, "--out", str(tmp_path / "out.toml")]) == 0, capsys.readouterr().err
        said = tomllib.loads((tmp_path / "out.toml").read_text())
        assert said["bids_filter"] in way
        findings = Findings("here", strict=True)
        people = read_people(tmp_path, read_settings(None, said).config, findings)
        assert not findings.blocked
        n_runs = 2 if "nback+rest" in str(way) else 1
        assert [len(person.runs) for person in people.listed] == [n_runs] * 2
        (tmp_path / "out.toml").unlink()


def test_no_site_is_lost_where_sites_name_their_task_otherwise(tmp_path):
    """The majority's task left a whole site without images, with no word."""
    for label in ("sub-1", "sub-2", "sub-3"):
        run(tmp_path / "site-a", label)
        run(tmp_path / "site-b", label, task="restingstate")
    text, ways = question(tmp_path)
    assert "(3 people: site-a)" in text
    both = "task-rest+restingstate_space-MNI152NLin2009cAsym_desc-preproc"
    assert ways[-1][-1] == both
    assert settings(tmp_path, bids_filter=both)[0]["bids_filter"] == both
    text, _ = question(tmp_path, bids_filter=ways[0][-1])
    assert "site site-b: CAPE-E104 No image of the BIDS folder fits bids_filter" in text


def test_links_into_the_annex_above_are_the_sites_own_files(tmp_path):
    base, annex = tmp_path / "derivatives" / "fmriprep", tmp_path / ".git" / "annex" / "objects"
    run(base, "sub-1")
    run(base, "sub-2")
    annex.mkdir(parents=True)
    for path in [p for p in base.rglob("*") if p.is_file()]:
        path.rename(annex / path.name)
        path.symlink_to(annex / path.name)
    said, counts = settings(base)
    assert f"{base.name}: 2 people" in counts
    config = read_settings(None, said).config

    def codes() -> set[str]:
        findings = Findings("here")
        read_people(base, config, findings)
        return {finding.code for finding in findings.listing()}

    assert codes() == set()
    # Content that was not fetched is told as that.
    first, second = (
        f"sub-{m}_task-rest_space-MNI152NLin2009cAsym_desc-preproc_bold.nii.gz" for m in (1, 2)
    )
    outside = tmp_path / "elsewhere"
    (annex / first).rename(outside)
    assert "E108 A file is a pointer, its content is not here" in question(base)[0]
    assert codes() == {"CAPE-E108"}
    # Another place than an annex above is none of the site's.
    link = base / "sub-1" / "func" / first
    link.unlink()
    link.symlink_to(outside)
    assert "CAPE-E102" in codes()
    assert (annex / second).is_file()


def test_a_folder_without_data_or_people_says_what_to_type(tmp_path, capsys):
    for command in ("simulate", "init"):
        assert main([command, str(tmp_path)]) != 0
        said = capsys.readouterr().err
        assert "data to try it with: cape synth FOLDER" in said
        assert "cape init" not in said
    for name in ("x1", "scan_b", "q"):
        image(tmp_path / f"{name}.nii.gz", code=4)
    _, ways = question(tmp_path)
    assert [way[2] for way in ways] == ["--layout", "--write"]
    assert main(ways[1]) in (0, 2)
    rows = (table := tmp_path / "manifest.csv").read_text().splitlines()
    filled = [rows[0], *(f"S{k}{row}" for k, row in enumerate(rows[1:]))]
    table.write_text("\n".join(filled) + "\n")
    assert f"{tmp_path.name}: 3 people" in settings(tmp_path)[1]


@pytest.mark.parametrize(("code", "moved"), [(1, 0.0), (0, 0.0), (2, 3.0)])
def test_images_that_may_be_native_get_no_mask_of_a_template(tmp_path, code, moved):
    for m in range(3):
        image(tmp_path / f"sub-{m}.nii.gz", code=code, moved=m * moved)
    text, _ = question(tmp_path)
    assert "no one MNI152 space is stated by all images (spaces: none 3)" in text
    assert "put the mask of their space into every folder, as mask.nii.gz" in text


# -- confounds -----------------------------------------------------------------------------------


def test_a_run_without_a_table_is_named_and_confounds_stay_on(tmp_path):
    """One missing table turned confounds off for all."""
    for label in ("sub-1", "sub-2", "sub-3"):
        for task in ("rest", "restb"):
            run(tmp_path, label, task=task)
    both = {"bids_filter": "task-rest+restb"}
    on = settings(tmp_path, **both)[0]["confound_strategy"]
    (tmp_path / "sub-2/func/sub-2_task-rest_desc-confounds_timeseries.tsv").unlink()
    for task in ("rest", "restb"):
        # Without motion is without a table that can be used.
        confounds(
            tmp_path / f"sub-3/func/sub-3_task-{task}_desc-confounds_timeseries.tsv", ("csf",)
        )
    said, counts = settings(tmp_path, **both)
    assert said["confound_strategy"] == on
    assert "sub-2_task-rest_space-MNI152NLin2009cAsym_desc-preproc_bold.nii.gz has no" in counts
    assert "write task-rest into column exclude of participants.tsv for sub-2" in counts
    assert "write 1 into column exclude of participants.tsv for sub-3" in counts
    # As the lines say
    rows = ["participant_id\texclude", "sub-1\t0", "sub-2\ttask-rest", "sub-3\t1"]
    (tmp_path / "participants.tsv").write_text("\n".join(rows) + "\n")
    said, counts = settings(tmp_path, **both)
    assert said["confound_strategy"] == on
    assert "has no confound table" not in counts
    assert "participants.tsv, line 4" in counts


def test_it_is_said_why_motion_has_six_signals(tmp_path):
    """One short run changed the cleaning of everybody without a word; its name stays here."""
    derived = ("_derivative1", "_power2", "_derivative1_power2")
    whole = (*COLUMNS, *(f"{name}{end}" for name in MOTION for end in derived))
    for label in ("sub-1", "sub-2", "sub-3"):
        run(tmp_path, label, n_times=120)
        confounds(tmp_path / label / f"func/{label}_task-rest_desc-confounds_timeseries.tsv", whole)
    said, counts = settings(tmp_path)
    assert said["confound_strategy"].startswith("motion=full")
    assert "6 signals" not in counts + propose(InitOptions(folder=tmp_path)).text
    name = "sub-2/func/sub-2_task-rest_space-MNI152NLin2009cAsym_desc-preproc_bold.nii.gz"
    short = nib.Nifti1Image(np.zeros((3, 4, 3, 12), np.int16), np.diag([8.0, 8, 8, 1]))
    short.to_filename(tmp_path / name)
    said, counts = settings(tmp_path)
    assert said["confound_strategy"].startswith("motion=basic")
    assert f"because 1 of 3 runs has fewer than 100 volumes: {name}; init" in counts
    text = propose(InitOptions(folder=tmp_path)).text
    assert "# Of motion 6 signals and not 24: some runs have fewer than the 100 volumes" in text
    # Maps and comparisons are cleaned otherwise, which stood in config.md alone.
    assert "a comparison\n# keeps that mean" in text
    run(tmp_path, "sub-2", n_times=120)  # with a table of 6 signals
    assert "because some tables lack the derivatives" in settings(tmp_path)[1]


# -- tables --------------------------------------------------------------------------------------


def test_the_axis_of_time_is_typed_and_never_guessed(tmp_path, capsys):
    for m in range(3):
        np.save(tmp_path / f"sub-{m}.npy", np.zeros((200 + m, 90)))
    text, ways = question(tmp_path)
    assert "3 tables have 200 to 202 rows and 90 columns: which axis is time?" in text
    for way, n_features in zip(ways, (90, 200), strict=True):
        assert main(way) == 0
        said = tomllib.loads((tmp_path / "settings.toml").read_text())
        assert (said["orientation"], said["n_features"]) == (way[-1], n_features)
        (tmp_path / "settings.toml").unlink()


def test_a_site_with_regions_in_another_order_is_named_and_columns_stay(tmp_path):
    """They went, for all sites, without a word."""
    for site, names in (("a", "xyz"), ("b", "xyz"), ("c", "zyx")):
        for label in PEOPLE:
            table(tmp_path / site / f"sub-{label}.csv", list(names))
    said, counts = settings(tmp_path, orientation="time_by_feature")
    assert said["columns"] == "x,y,z"
    assert "c: 3 of 3 tables have another header: the same names in another order" in counts
    table(tmp_path / "b" / "sub-1.csv", ["x", "why", "z"])
    counts = settings(tmp_path, orientation="time_by_feature")[1]
    assert "b: 1 of 3 tables have another header: other names" in counts


def test_init_counts_whom_the_default_of_time_points_leaves_out(tmp_path):
    """61 of 61 runs were short: init was silent, "8 of 23 people count", NOT READY."""
    for k, lengths in enumerate([(60, 60), (60, 60), (60, 60), (50,), (57,)], start=1):
        for n, length in enumerate(lengths, start=1):
            run(tmp_path, f"sub-{k}", task=f"rest_run-{n}", n_times=length)
    said, counts = settings(tmp_path)
    assert "min_timepoints" not in said
    assert "2 of 5 people would count as zeros: fewer than 100 time points" in counts
    assert "min_timepoints = 50 counts them" in counts
    assert "init proposes 24" not in counts  # no run would be left
    for n in (1, 2):
        run(tmp_path, "sub-1", task=f"rest_run-{n}", n_times=30)
    said, counts = settings(tmp_path)
    assert said["min_timepoints"] == 50
    assert "time points of a person: 50 to 120, so min_timepoints = 50" in counts
    assert "count as zeros" not in counts


@pytest.mark.parametrize("named", [False, True])
def test_headers_that_are_no_labels_of_the_atlas_are_told_by_init_as_by_validate(
    named, tmp_path, capsys
):
    """init was content, and validate said that the number of features differs."""
    atlas(tmp_path)
    if named:
        rows = ("index\tname", *(f"{k + 1}\tArea {k + 1}" for k in range(30)))
        (tmp_path / "atlas.tsv").write_text("\n".join(rows) + "\n")
    for label in PEOPLE:
        table(tmp_path / f"sub-{label}.csv", [f"roi_{k + 1}" for k in range(30)])
    text, _ = question(tmp_path, orientation="time_by_feature")
    wanted = (
        "names of atlas.tsv such as 'Area 1'"
        if named
        else "(there is no atlas.tsv beside the atlas"
    )
    (tmp_path / "settings.toml").write_text(
        'feature_space = "atlas"\natlas = "atlas.nii.gz"\norientation = "time_by_feature"\n'
        'min_timepoints = 40\nbids_filter = ""\n'
    )
    assert main(["validate", str(tmp_path)]) != 0
    for told in (text, capsys.readouterr().out):
        told = " ".join(told.split())
        assert "The columns of a table are not named as the parcels of the atlas" in told
        assert "such as 'roi_1'" in told
        assert wanted in told


def test_a_parcel_that_was_not_covered_is_told_as_that(tmp_path):
    """XCP-D writes n/a into all of its column; the remedy was to save the table again."""
    for label in PEOPLE:
        path = table(tmp_path / f"sub-{label}.tsv", ["a", "b", "c"])
        head, *rows = path.read_text().splitlines()
        cells = [row.split("\t") for row in rows]
        path.write_text("\n".join([head, *(f"{a}\tn/a\t{c}" for a, _, c in cells)]) + "\n")
    text, _ = question(tmp_path, orientation="time_by_feature")
    assert "A column of a table has no number" in text
    assert "column 'b', 1 of 3 columns" in text
    assert "save it again" not in text


# -- the file ------------------------------------------------------------------------------------


def test_a_missing_settings_file_is_reported_as_that_and_none_is_overwritten(
    tmp_path, capsys, typed
):
    folder = str(tmp_path / "study")
    for site in "abc":
        run(tmp_path / "study" / site, "sub-1")
    err = typed("simulate", folder, "--out", str(tmp_path / "out"), code=2).err
    assert "CAPE-E013 setting 'epsilon' is required; no settings.toml" in err
    assert "cape init" in err
    main(["validate", folder, "--fast", "--quiet"])
    assert f"write one with: cape init {folder}" in capsys.readouterr().err
    assert "chosen: task-rest_space-MNI152NLin2009cAsym_desc-preproc" in typed("init", folder).out
    main(["validate", folder, "--fast", "--quiet"])
    assert "cape init" not in capsys.readouterr().err
    assert "exists already" in typed("init", folder, code=2).err


def test_a_read_only_folder_gets_its_settings_elsewhere(tmp_path, capsys, monkeypatch):
    of_cifti(tmp_path / "data", dense=True)
    written = Path.write_bytes

    def read_only(path: Path, content: bytes) -> int:
        if path.is_relative_to(tmp_path / "data"):
            raise PermissionError(13, "Permission denied")
        return written(path, content)

    monkeypatch.setattr(Path, "write_bytes", read_only)  # whoever is root may write anywhere
    (tmp_path / "here").mkdir()
    out = tmp_path / "here" / "settings.toml"
    assert main(["init", str(tmp_path / "data"), "--out", str(out)]) == 0
    assert (tmp_path / "here" / "structure.dscalar.nii").is_file()
    assert "cannot be written (Permission denied): copy" in capsys.readouterr().out
    assert main(["init", str(tmp_path / "data"), "--out", "/dev/null/settings.toml"]) == 2
    assert "choose another --out" in capsys.readouterr().err


def test_settings_that_all_sites_read_name_nobody(tmp_path):
    """Each person's folder was a site, whose name stood in settings.toml; so may columns."""
    for label in ("P101", "P102", "P103"):
        table(tmp_path / f"sub-{label}.csv", ["P101", "P102", "P103"])
    text, _ = question(tmp_path, orientation="time_by_feature")
    assert "would contain the label of a person here" in text
    assert "P101" not in text


@pytest.mark.parametrize("where", ["in it", "beside it"])
def test_no_file_that_is_sent_names_a_person_of_the_folder_at_hand(tmp_path, capsys, where):
    """Only `cape init` looked; a line written by hand went to all sites."""
    data = tmp_path / "data"
    for label in ("P101", "P102", "P103"):
        run(data, f"sub-{label}")
    file = (data if where == "in it" else tmp_path) / "settings.toml"
    (tmp_path / "checkout").mkdir()
    out, job = tmp_path / "form.json", tmp_path / "job"
    commands = (
        ["settings", str(file), "--out", str(out)],
        ["flare", "job", str(job), "--settings", str(file), "--subjects", "300"],
        ["neuroflame", str(tmp_path / "checkout"), "--settings", str(file)],
    )
    for sites, allowed in (("sub-P101,b,c", False), ("P102,b,c", False), ("a,b,c", True)):
        text = f'epsilon = 3.0\ndelta = 1e-5\nmask = "MNI152-4mm"\nsite_names = "{sites}"\n'
        file.write_text(text)
        for command in commands[: 3 if not allowed else 2]:
            assert (main(command) == 0) == allowed, capsys.readouterr()
            said = capsys.readouterr().err
            assert ("CAPE-E018" in said) != allowed
            assert "P10" not in said
        assert out.exists() == job.exists() == allowed


def test_settings_that_are_typed_or_resumed_name_nobody_of_the_folder_at_hand(
    tmp_path, capsys, monkeypatch
):
    """Without --settings, and with --resume, nothing was looked at."""
    for label in ("P101", "P102"):
        run(tmp_path / "here/data", f"sub-{label}")
    (tmp_path / "away").mkdir()
    values = ("mask=MNI152-4mm", "site_names=P102,b,c", "epsilon=3", "delta=1e-5")
    typed = [word for value in values for word in ("--set", value)]
    away = ["flare", "job", str(tmp_path / "away/job"), "--subjects", "300", *typed]
    here = ["flare", "job", str(tmp_path / "here/job"), "--subjects", "300", *typed]
    resumed = ["flare", "job", str(tmp_path / "here/job"), "--resume", str(tmp_path / "away/job")]
    monkeypatch.chdir(tmp_path / "away")
    assert main(away) == 0, capsys.readouterr()
    monkeypatch.chdir(tmp_path / "here")
    for command in (here, resumed, ["neuroflame", str(tmp_path / "away"), *typed]):
        assert main(command) != 0
        said = capsys.readouterr().err
        assert "CAPE-E018" in said
        assert "P102" not in said
    assert not (tmp_path / "here/job").exists()


@pytest.mark.parametrize(("n_maps", "outcomes"), [(4, "fnc"), (33, "domains")])
def test_maps_are_named_in_the_settings_with_what_can_be_asked_of_them(
    tmp_path, capsys, n_maps, outcomes
):
    """A refusal told users to type `cape init --maps`, which was no option."""
    run(tmp_path / "lab", "sub-01")
    maps = tmp_path / "atlas.nii.gz"
    nib.Nifti1Image(np.zeros((3, 4, 3, n_maps), np.float32), np.eye(4)).to_filename(maps)
    rows = [f"IC {k}\t{'visual' if k % 2 else 'motor'}" for k in range(n_maps)]
    maps.with_name("atlas.tsv").write_text("\n".join(["name\tdomain", *rows]) + "\n")
    capsys.readouterr()
    assert main(["init", str(tmp_path / "lab"), "--maps", str(maps)]) == 0
    # It ended with how many people capegica needs, which nobody had asked for.
    assert "alone, with epsilon" not in capsys.readouterr().out
    written = tmp_path / "lab" / "settings.toml"
    assert tomllib.loads(written.read_text())["capecontrast"]["outcomes"] == outcomes
    given = ["--set", "variables=dx a/b", "--set", "formula=dx", "--set", "public=dx"]
    # "capegica regresses on no maps", said `validate --maps` of what `init --maps` wrote.
    capsys.readouterr()
    main(["validate", str(tmp_path / "lab"), "--maps", str(maps), "--fast", *given])
    said = "".join(capsys.readouterr())
    assert "CAPE-E012" not in said
    assert "No table of people has a column of the comparison" in said
    asked = ["--computation", "capecontrast", "--settings", str(written), "--sites", "3", *given]
    assert (
        main(["budget", *asked, "--subjects", "3000", "--epsilon", "4", "--set", "n_sites=3"]) == 0
    )


def test_tables_of_one_ending_get_a_layout_for_each_site(tmp_path) -> None:
    """Proposed was `--layout sub-L000_roi.csv`, the name of one file of the first site."""
    for label in "LP":
        for m in range(3):
            table(tmp_path / f"site{label}" / f"sub-{label}00{m}_roi.csv", ["a", "b"])
    with pytest.raises(ConfigError, match="CAPE-E165") as caught:
        propose(InitOptions(folder=tmp_path))
    for label in "LP":
        way = f"cape people {tmp_path / f'site{label}'} --layout '{{subject}}_roi.csv'"
        assert way in caught.value.public
    # Runs of one person must not become people.
    table(tmp_path / "siteL" / "sub-L000_run-2_roi.csv", ["a", "b"])
    with pytest.raises(ConfigError, match=r"--layout sub-L000_r\w+.csv"):
        propose(InitOptions(folder=tmp_path))


@pytest.mark.parametrize(("n_outside", "said"), [(238, "at most 200"), (1, "has label 3;")])
def test_an_atlas_that_no_run_takes_is_refused_before_settings_name_it(
    tmp_path, capsys, n_outside, said
):
    """`init` wrote 240 names, which validate and simulate refused; labels outside the mask too."""
    run(tmp_path / "lab", "sub-01")
    labels = np.zeros((91, 109, 91), np.int16)
    labels[20:45, 30:80, 30:60], labels[45:70, 30:80, 30:60] = 1, 2
    labels.reshape(-1)[:n_outside] = np.arange(3, 3 + n_outside)
    affine = np.array([[2.0, 0, 0, -90], [0, 2, 0, -126], [0, 0, 2, -72], [0, 0, 0, 1]])
    maps = tmp_path / "parcels.nii.gz"
    nib.Nifti1Image(labels, affine).to_filename(maps)
    assert main(["init", str(tmp_path / "lab"), "--maps", str(maps)]) != 0
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err
    assert not (tmp_path / "lab/settings.toml").exists()


@pytest.mark.parametrize(("n", "outcomes"), [(32, "fnc"), (33, "loadings")])
def test_the_outcomes_of_maps_without_domains_are_some_that_a_run_takes(tmp_path, n, outcomes):
    """Means of domains were proposed for regions that have none, and refused by the run."""
    np.savetxt(tmp_path / "maps.csv", np.eye(300)[:, :n], delimiter=",")
    given = proposed_question(tmp_path / "maps.csv")
    assert given["outcomes"] == outcomes
    assert len(outcome_names(parse_measure(**given))) <= 500


def regions(folder: Path, n: int) -> Path:
    maps = folder / "LabAtlas.nii.gz"
    labels = np.arange(n + 1, dtype=np.int16)
    labels[labels > 2] += 5  # numbers need not be places
    nib.Nifti1Image(labels.reshape(1, 1, -1), np.eye(4)).to_filename(maps)
    return maps


ROWS = [(n + 5 * (n > 2), f"area{n}", f"net {n % 3}") for n in range(1, 41)]
TABLES = {
    "index, name and domain": (".tsv", "index\tname\tdomain", "{}\t{}\t{}"),
    "a column network": (".csv", "roi_id,label,Region,Network,roi", "9,{},{},{},x"),
    "no index": (".tsv", "name\tdomain", "{1}\t{2}"),
}


@pytest.mark.parametrize("form", TABLES)
def test_the_domains_of_an_atlas_are_those_of_its_table_whatever_its_form(form, tmp_path):
    """Domains were dropped, loadings proposed, and a table without numbers gave 'region 1'."""
    end, head, row = TABLES[form]
    maps = regions(tmp_path, 40)
    text = "\n".join([head, *(row.format(*each) for each in ROWS)])
    (tmp_path / f"LabAtlas{end}").write_text(text + "\n")
    # Beside it the names alone, as many programs write them
    names = "\n".join(f"{n} other_{name}" for n, name, _ in ROWS)
    (tmp_path / "LabAtlas.txt").write_text(names)
    asked = proposed_question(maps)
    assert asked["outcomes"] == "domains"
    assert asked["networks"] == ", ".join(f"{name} ({net})" for _, name, net in ROWS)
    assert lines_of_maps(maps, asked) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name\tdomain\na\tx\n", r"LabAtlas.tsv .*no column index, and 1 rows for 40 labels"),
        ("what\tdomain\na\tx\n", r"LabAtlas.tsv cannot be read: no numbers or no names"),
        ("index\tname\tdomain\n1\ta\t\n2\tb\tx\n", "a has no domain, others have"),
        ("index\tname\n1\tHip\n2\tb\n8\thip\n", "labels 1 and 8 of the table .* are both hip"),
        ("index\tname\tdomain\n1\ta\tx (y)\n2\tb\tx\n", "comma, quote or parenthesis"),
    ],
)
def test_a_table_of_an_atlas_that_is_not_used_is_named_with_the_reason(text, words, tmp_path):
    maps = regions(tmp_path, 40)
    (tmp_path / "LabAtlas.tsv").write_text(text)
    with pytest.raises(ConfigError, match=words):
        proposed_question(maps)
    maps_with_names(maps)  # the end of a run, which nothing of this stops


def test_connectivity_that_is_not_asked_says_why_and_what_to_add(tmp_path):
    maps = regions(tmp_path, 40)
    (tmp_path / "LabAtlas.tsv").write_text(
        "index\tname\n" + "".join(f"{n}\t{name}\n" for n, name, _ in ROWS)
    )
    (said,) = lines_of_maps(maps, proposed_question(maps))
    assert said.startswith("connectivity is not asked: 40 maps have 780 pairs, allowed 500; ")
    assert "a column domain in LabAtlas.tsv" in said


def test_a_table_that_lacks_labels_and_an_image_without_are_told(tmp_path):
    """The one gave "region 15" in silence; the other "setting 'networks' is required"."""
    maps = regions(tmp_path, 4)
    (tmp_path / "LabAtlas.tsv").write_text("index\tname\n1\ta\n2\tb\n9\td\n")
    (said,) = lines_of_maps(maps, proposed_question(maps))
    assert said == "the table beside LabAtlas.nii.gz has no row for label 8"
    values = np.array([0.0, 1.5, 2.0]).reshape(1, 1, -1)
    nib.Nifti1Image(values, np.eye(4)).to_filename(tmp_path / "interp.nii.gz")
    chosen = {"computation": "capecontrast", "outcomes": "fnc"}
    for wrong in (proposed_question, lambda file: of_maps(file, chosen)):
        with pytest.raises(ConfigError, match=r"interp.nii.gz: .* no labels \(0 to 2\)"):
            wrong(tmp_path / "interp.nii.gz")


def test_settings_that_name_other_maps_are_told_so(tmp_path):
    """Maps of 240 names, then a smaller atlas: "leave out the least important" helped nobody."""
    np.savetxt(tmp_path / "maps.csv", np.eye(5)[:, :3], delimiter=",")
    names = ", ".join(f"r{k}" for k in range(240))
    chosen = {"computation": "capecontrast", "outcomes": "fnc", "networks": names}
    with pytest.raises(ConfigError, match=r"names 240 maps.*maps\.csv has 3.*cape init"):
        of_maps(tmp_path / "maps.csv", chosen)
    assert of_maps(tmp_path / "maps.csv", {**chosen, "networks": "a, b, c"}) == {}
    # --set networks= was "names 1 maps".
    again = of_maps(tmp_path / "maps.csv", {**chosen, "networks": " "})
    assert again == {"networks": "C01, C02, C03"}
