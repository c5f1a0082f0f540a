"""``cape synth``: a consortium whose true maps are known, in the layouts people have."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cape.cli.show import json_line, say, working

AsJson = Annotated[bool, typer.Option("--json", help="JSON for machines, one document a line.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the result only.")]


class Preset(StrEnum):
    """Synthetic consortia."""

    BRAIN = "brain"
    PAPER = "paper"
    REALISTIC = "realistic"
    RECORDS = "records"


class FileLayout(StrEnum):
    """How synthetic sites keep their files."""

    FILES = "files"
    MANIFEST = "manifest"
    BIDS = "bids"
    MATRIX = "matrix"
    ATLAS = "atlas"


def synth(
    out: Annotated[Path, typer.Argument(help="Folder to write; one folder per site in it.")],
    preset: Annotated[
        Preset,
        typer.Option(
            help="brain: NIfTI in MNI space; paper, realistic: matrices; records: tables."
        ),
    ] = Preset.BRAIN,
    sites: Annotated[int, typer.Option(min=1, help="Number of sites.")] = 4,
    subjects: Annotated[
        int, typer.Option(min=0, help="Subjects in all, split unequally; 0: the preset's.")
    ] = 0,
    site_sizes: Annotated[
        str, typer.Option(metavar="9,6,4", help="Subjects of each site instead of the two.")
    ] = "",
    timepoints: Annotated[int, typer.Option(min=0, help="Volumes; 0: the preset's.")] = 0,
    grid: Annotated[int, typer.Option(help="Voxel size of brain: 10, 8, 6, 4 or 3 mm.")] = 10,
    networks: Annotated[int, typer.Option(min=0, help="Networks; 0: the preset's.")] = 0,
    tr: Annotated[float, typer.Option(min=0.0, help="Repetition time, s.")] = 2.0,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same data.")] = 0,
    layout: Annotated[
        FileLayout, typer.Option(help="How the sites of brain keep their files.")
    ] = FileLayout.FILES,
    templates: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Write template maps of this correlation too."),
    ] = 0.0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a synthetic consortium whose true maps are known."""
    from cape.synthetic import write_consortium

    with working(f"writing {out}", quiet=quiet or as_json) as progress:
        done = write_consortium(
            out,
            preset=preset.value,
            n_sites=sites,
            n_subjects=subjects,
            site_sizes=_whole_numbers(site_sizes),
            n_timepoints=timepoints,
            grid_mm=grid,
            n_networks=networks,
            tr=tr,
            seed=seed,
            layout=layout.value,
            templates=templates,
            progress=progress,
        )
    if as_json:
        json_line({"event": "result", **dataclasses.asdict(done), "folder": str(out)})
    elif not quiet:
        sizes = ", ".join(str(size) for size in done.site_sizes)
        say(f"{out}: subjects per site {sizes}; {done.n_features} features; {_mb(done.n_bytes)}")
        say(f"next: cape simulate {out} --out out --epsilon 8 --delta 1e-5")


def _mb(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.0f} MB"


def _whole_numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise typer.BadParameter(f"--site-sizes {text}: whole numbers such as 9,6,4") from None
