"""What a paper about a run should cite, as text and as BibTeX."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from cape.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """One work; fields are BibTeX's."""

    key: str
    authors: tuple[str, ...]  # "Family, Initials"; a last "others" for et al.
    year: int
    title: str
    journal: str
    rest: str  # as printed: volume, pages
    note: str = ""

    @property
    def text(self) -> str:
        names = [name.replace(",", "") for name in self.authors]
        who = ", ".join(names[:-1]) + ", et al" if names[-1] == "others" else ", ".join(names)
        tail = f" {self.note}" if self.note else ""
        return f"{who} ({self.year}). {self.title}. {self.journal} {self.rest}.{tail}"

    @property
    def bibtex(self) -> str:
        volume, _, pages = self.rest.partition(", ")
        fields = {
            "author": " and ".join(self.authors),
            "title": f"{{{self.title}}}",
            "journal": self.journal,
            "year": str(self.year),
            # A line of a conference has pages alone.
            **({"volume": volume} if pages else {}),
            "pages": (pages or self.rest).replace("-", "--"),
            "note": self.note,
        }
        lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
        return "\n".join([f"@article{{{self.key},", *lines, "}"])


ALL: Final = {
    reference.key: reference
    for reference in (
        Reference(
            key="imtiaz2021",
            authors=(
                "Imtiaz, H",
                "Mohammadi, J",
                "Silva, R",
                "Baker, B",
                "Plis, SM",
                "Sarwate, AD",
                "Calhoun, VD",
            ),
            year=2021,
            title="A correlated noise-assisted decentralized differentially private estimation "
            "protocol, and its application to fMRI source separation",
            journal="IEEE Transactions on Signal Processing",
            rest="69, 6355-6370",
            note="Preprint, which cape follows: Improved differentially private decentralized "
            "source separation for fMRI data.",
        ),
        Reference(
            key="baker2019",
            authors=(
                "Baker, BT",
                "Abrol, A",
                "Silva, RF",
                "Damaraju, E",
                "Sarwate, AD",
                "Calhoun, VD",
                "Plis, SM",
            ),
            year=2019,
            title="Decentralized temporal independent component analysis: leveraging fMRI data in "
            "collaborative settings",
            journal="NeuroImage",
            rest="186, 557-569",
        ),
        Reference(
            key="dong2022",
            authors=("Dong, J", "Roth, A", "Su, WJ"),
            year=2022,
            title="Gaussian differential privacy",
            journal="Journal of the Royal Statistical Society B",
            rest="84(1), 3-37",
        ),
        Reference(
            key="canonne2020",
            authors=("Canonne, CL", "Kamath, G", "Steinke, T"),
            year=2020,
            title="The discrete Gaussian for differential privacy",
            journal="Advances in Neural Information Processing Systems",
            rest="33, 15676-15688",
        ),
        Reference(
            key="bonawitz2017",
            authors=(
                "Bonawitz, K",
                "Ivanov, V",
                "Kreuter, B",
                "Marcedone, A",
                "McMahan, HB",
                "Patel, S",
                "Ramage, D",
                "Segal, A",
                "Seth, K",
            ),
            year=2017,
            title="Practical secure aggregation for privacy-preserving machine learning",
            journal="ACM CCS",
            rest="1175-1191",
        ),
        Reference(
            key="hyvarinen1999",
            authors=("Hyvarinen, A",),
            year=1999,
            title="Fast and robust fixed-point algorithms for independent component analysis",
            journal="IEEE Transactions on Neural Networks",
            rest="10(3), 626-634",
        ),
        Reference(
            key="power2012",
            authors=("Power, JD", "Barnes, KA", "Snyder, AZ", "Schlaggar, BL", "Petersen, SE"),
            year=2012,
            title="Spurious but systematic correlations in functional connectivity MRI networks "
            "arise from subject motion",
            journal="NeuroImage",
            rest="59(3), 2142-2154",
        ),
        Reference(
            key="harris2020",
            authors=("Harris, CR", "Millman, KJ", "van der Walt, SJ", "others"),
            year=2020,
            title="Array programming with NumPy",
            journal="Nature",
            rest="585, 357-362",
        ),
        Reference(
            key="abraham2014",
            authors=("Abraham, A", "Pedregosa, F", "Eickenberg, M", "others"),
            year=2014,
            title="Machine learning for neuroimaging with scikit-learn",
            journal="Frontiers in Neuroinformatics",
            rest="8, 14",
        ),
        Reference(
            key="dosenbach_2010",
            authors=("Dosenbach, NUF", "Nardos, B", "Cohen, AL", "others"),
            year=2010,
            title="Prediction of individual brain maturity using fMRI",
            journal="Science",
            rest="329, 1358-1361",
        ),
        Reference(
            key="seitzman_2018",
            authors=("Seitzman, BA", "Gratton, C", "Marek, S", "others"),
            year=2020,
            title="A set of functionally-defined brain regions with improved representation of "
            "the subcortex and cerebellum",
            journal="NeuroImage",
            rest="206, 116290",
        ),
        Reference(
            key="yeo_2011",
            authors=("Yeo, BTT", "Krienen, FM", "Sepulcre, J", "others"),
            year=2011,
            title="The organization of the human cerebral cortex estimated by intrinsic "
            "functional connectivity",
            journal="Journal of Neurophysiology",
            rest="106(3), 1125-1165",
        ),
        Reference(
            key="schaefer_2018",
            authors=("Schaefer, A", "Kong, R", "Gordon, EM", "others"),
            year=2018,
            title="Local-global parcellation of the human cerebral cortex from intrinsic "
            "functional connectivity MRI",
            journal="Cerebral Cortex",
            rest="28(9), 3095-3114",
        ),
        Reference(
            key="smith_2009",
            authors=("Smith, SM", "Fox, PT", "Miller, KL", "others"),
            year=2009,
            title="Correspondence of the brain's functional architecture during activation and "
            "rest",
            journal="PNAS",
            rest="106(31), 13040-13045",
        ),
    )
}


def references_of(
    settings: Mapping[str, object], *, kind: str, labels: str | None
) -> tuple[Reference, ...]:
    """Return what a run with these settings and this set of network names rests on."""
    keys = ["imtiaz2021", "baker2019", "dong2022", "canonne2020", "bonawitz2017"]
    if kind == "spatial":
        keys.append("hyvarinen1999")
    strategy = str(settings.get("confound_strategy", "none"))
    if "scrub" in strategy or settings.get("max_mean_fd"):
        keys.append("power2012")
    if strategy != "none":
        keys.append("abraham2014")
    keys.append("harris2020")
    if labels in ALL:
        keys.append(str(labels))
    return tuple(ALL[key] for key in keys)


def bibliography(references: Iterable[Reference]) -> str:
    return "\n\n".join(reference.bibtex for reference in references) + "\n"
