"""What is recorded: named plays, each a few `cape` commands in an empty folder.

`{through}` stands for how messages travel.  A step "@name" is a function of `golden.adapter`, with
the folder that follows it.
"""

from dataclasses import dataclass

BOTH = ("memory", "process")


@dataclass(frozen=True)
class Play:
    """One play."""

    steps: tuple[str, ...]  # commands without ``cape``, split at blanks
    through: tuple[str, ...] = ("memory",)  # every way gives the same record
    pictures: bool = (
        False  # whether matplotlib is found; without it a run takes a third of the time
    )
    slow: tuple[str, ...] = ("process",)  # ways that are left to the nightly tests
    list_data: bool = False  # whether every file below ``data*`` has a digest of its own
    may_fail: bool = False  # whether commands may end with another code than 0, which is recorded


IMAGES = "synth data --preset paper --site-sizes 3,2,2 --timepoints 60 --networks 3 --seed 11"
REAL = "synth data --preset realistic --site-sizes 3,2,2 --timepoints 60 --networks 3 --seed 12"
BRAIN = "synth data --preset brain --site-sizes 2,2,2 --timepoints 40 --networks 3 --seed 13"
RECORDS = "synth data --preset records --site-sizes 40,30,30 --seed 14"
# So few people are noise; without noise the word is only part of the recorded settings.
SEEDED = "simulate data --out out --through {through} --seed 7 --set accept_low_quality=true"
RUN = SEEDED + " --epsilon 20 --delta 1e-5"
OPEN = SEEDED + " --set private=false"
BASIS = " --set n_basis=40"
SHORT = " --set n_rounds=2 --set n_looks=1" + BASIS


def _run(more: str = "", *, data: str = IMAGES, short: str = SHORT, run: str = RUN) -> tuple:
    return data, f"{run}{short}{more}"


TEMPLATES = " --templates 0.8"
GROUP = " --set computation=capegica --set n_components=3"
TEMPLATE = " --set computation=capedualreg --set basis=kernel"
FIVE = IMAGES.replace("3,2,2", "3,2,2,2,2")
PRODUCT = {
    "temporal": Play(_run(), BOTH),
    "spatial": Play(_run(GROUP, short=BASIS)),
    "template": Play(_run(TEMPLATE, data=IMAGES + TEMPLATES, short=BASIS)),
    "secagg-drop": Play(_run(" --set aggregation=secagg --drop local3@iterate:2", data=FIVE)),
    "secagg-drop-of-four": Play(
        _run(
            " --set aggregation=secagg --drop local3@iterate:1 --set n_rounds=1",
            data=IMAGES.replace("3,2,2", "2,2,2,2"),
        ),
        BOTH,
    ),
    "secagg-drop-unmask": Play(
        _run(" --set aggregation=secagg --drop local3@iterate.unmask:1", data=FIVE)
    ),
    "noise-local": Play(_run(" --set noise=local")),
    "not-private": Play(_run(run=OPEN)),
    "pinned": Play((IMAGES, "@pinned_keys data", f"{RUN}{SHORT} --set key_trust=pinned")),
    "one-site": Play(
        _run(" --set noise=local --set min_sites=1", data=IMAGES.replace("3,2,2", "7"))
    ),
}
MEAN = " --set computation=capemean --set low=-3 --set high=3"
PAPER = " --set computation=paperdjica"
JOINT = " --set computation=djica --set n_components=3 --set n_local=12"
OTHERS = {
    "capecca": Play(_run(data=RECORDS, short="")),
    "capecca-range": Play(
        _run(" --set centre=range --set ridge=0.1 --set bounds=4:-2:2", data=RECORDS, short="")
    ),
    "capemean": Play(_run(MEAN, short=""), BOTH, slow=()),
    "paper": Play(_run(PAPER)),
    "infomax": Play(
        _run(
            PAPER + " --set pca=projector --set whitening=log-euclidean --set prewhiten=ar1"
            " --set clip=subject"
        )
    ),
    "variants": Play(
        _run(
            PAPER + " --set whitening=log-euclidean --set solver=quasi-newton --set score=tanh"
            " --set shares=0.4,0.3,0.3 --set standardize=floored --set detrend=quadratic"
            " --set assumed_colluders=0",
            data=REAL,
            short=" --set n_rounds=3 --set n_looks=2",
        )
    ),
    "papermean": Play(_run(MEAN.replace("capemean", "papermean"), short="")),
    "capepca": Play(_run(" --set computation=capepca", data=RECORDS, short="")),
    "dpdispca": Play(
        _run(" --set computation=dpdispca --set n_sent=4", data=RECORDS, short="")
    ),
    "djica": Play(_run(JOINT + " --set n_rounds=2", short="")),
    "djica-block": Play(_run(JOINT + " --set batch=block --set n_rounds=6", short="")),
    "dpdjica": Play(
        _run(
            " --set computation=dpdjica --set n_components=3 --set n_local=6 --set n_rounds=2",
            short="",
        ),
        BOTH,
    ),
    "arrays": Play(("@arrays out",)),
}  # fmt: skip
LAYOUT = " --set n_rounds=2 --set n_looks=1"
PICTURES = {
    "brain": Play(_run(data=BRAIN, short=LAYOUT), pictures=True),
    "brain-spatial": Play(
        _run(GROUP, data=BRAIN, short=""), pictures=True, slow=("memory",)
    ),
    "brain-template": Play(
        _run(TEMPLATE, data=BRAIN + TEMPLATES, short=""), pictures=True, slow=("memory",)
    ),
    "images": Play(_run(), pictures=True, slow=("memory",)),
    "capecca-pictures": Play(_run(data=RECORDS, short=""), pictures=True, slow=("memory",)),
    "djica-pictures": Play(
        _run(JOINT + " --set n_rounds=2", short=""), pictures=True, slow=("memory",)
    ),
}  # fmt: skip
CLEANED = (
    " --set high_pass=0.01 --set smoothing_fwhm=12 --set confounds=motion6"
    " --set drop_first_volumes=2 --set min_timepoints=30 --set standardize=floored"
)
READING = {
    "brain-files": Play(_run(data=BRAIN, short=LAYOUT), slow=BOTH),
    "bids-cleaned": Play(_run(CLEANED, data=BRAIN + " --layout bids", short=LAYOUT)),
    "manifest": Play(_run(data=BRAIN + " --layout manifest", short=LAYOUT), slow=("memory",)),
    "table": Play(_run(data=BRAIN + " --layout matrix", short=LAYOUT), slow=("memory",)),
    "atlas": Play(_run(data=BRAIN + " --layout atlas", short=LAYOUT)),
    # Quiet: the line of progress counts the bytes of a message without its files.
    "large-arrays": Play(
        _run(
            " --quiet --set computation=capepca --set n_basis=1500 --set max_features=2000"
            " --set basis=dct --set feature_space=mask --set noise=local --set min_sites=1",
            data=BRAIN.replace("2,2,2", "2"), short="",
        ),
        BOTH, slow=BOTH,
    ),
}  # fmt: skip
DEFECTS = (
    "missing", "outside", "duplicate", "empty", "truncated_gz", "three_d", "left_right",
    "wrong_grid", "rounded_affine", "shifted_affine", "flipped_axes", "native_space", "nan",
    "constant", "dead", "coverage", "too_short", "no_tr", "tr_in_ms", "other_tr", "dummies",
    "ragged_table", "same_names", "surface",
)  # fmt: skip
TABLE_DEFECTS = (
    "text_as_nii", "truncated_npy", "too_short_matrix", "decimal_comma", "pickle_npy",
    "no_variable", "swapped_orientation", "other_features",
)  # fmt: skip


def _defects(data: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Data as they should be, what a person did to those of one site, and what is said of it."""
    steps: list[str] = []
    for name in names:
        steps += [data.replace("data", f"data-{name}", 1), f"@defect data-{name}"]
        steps.append(f"validate data-{name} --strict")
    return tuple(steps)


BUDGET = "budget --subjects 256 --sites 4 --components 15 --epsilon 2"
COMMANDS = {
    "data": Play(
        (
            IMAGES.replace("data", "data-paper"),
            REAL.replace("data", "data-realistic") + TEMPLATES,
            RECORDS.replace("data", "data-records"),
            BRAIN.replace("data", "data-brain") + TEMPLATES,
            *(
                BRAIN.replace("data", f"data-{layout}") + f" --layout {layout} --tr 1.5"
                for layout in ("manifest", "bids", "matrix", "atlas")
            ),
        ),
        list_data=True,
    ),
    "account": Play(
        (
            IMAGES,
            RUN + MEAN,
            "account --ledger out/consortium/privacy.json",
            "account --mu 0.2681 --delta 1e-5",
            "account --noise-multiplier 43.08 --sites 4 --rounds 100",
            "account --mu 0.1 --sites 5 --colluders 2 --ratio 1000 --rounds 50 --per-round 2",
            "account --mu 0.1 --sites 5 --ratio 5 --rounds 20 --release-delta 0.001 --json",
            "budget --check out/consortium/privacy.json",
        )
    ),
    "budget": Play(
        (
            BUDGET,
            BUDGET + " --set computation=capegica",
            BUDGET + " --set computation=capedualreg",
            "budget --subjects 2000 --sites 8 --components 20 --epsilon 1 --colluders 3 --json",
            "budget --subjects 900 --sites 3 --components 5 --epsilon 1 --set noise=local"
            f"{PAPER} --rounds 9 --basis 60",
            "budget --subjects 900 --sites 3 --epsilon 1 --set computation=papermean",
            "budget --subjects 900 --sites 6 --components 5 --set private=false",
            "budget --subjects 20 --sites 2 --components 5 --epsilon 1",
        ),
        may_fail=True,
    ),
    "validate": Play(
        (
            BRAIN.replace("2,2,2", "3,3,3"),
            "validate data --set epsilon=20 --set delta=1e-5 --out out/findings.tsv",
            "validate data/local1 --json",
            "validate data --fast",
            IMAGES.replace("data", "data-paper"),
            "validate data-paper",
            RECORDS.replace("data", "data-records"),
            "validate data-records --json",
            "validate data/local0 --set mask=MNI152-8mm",
        ),
        may_fail=True,
    ),
    "defects": Play(_defects(BRAIN, DEFECTS), slow=("memory",), may_fail=True),
    "defects-of-tables": Play(_defects(IMAGES, TABLE_DEFECTS), slow=("memory",), may_fail=True),
    "refusals": Play(
        (
            IMAGES,
            RUN + " --set n_components=51",
            RUN + " --set n_component=5",
            RUN + " --set min_sites=4",
            "simulate data --out out",
            "synth data --preset brain",
        ),
        may_fail=True,
    ),
}

PLAYS: dict[str, Play] = {**COMMANDS, **PRODUCT, **OTHERS, **READING, **PICTURES}
