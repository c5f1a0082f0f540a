"""Exceptions of cape, and the catalogue of error texts that may leave a site.

COINSTAC shows and stores these texts.  Placeholders take public values only: settings, versions,
hashes, phase names, round numbers, site ids; never a path, a file name, a subject label or a number
computed from data.
"""

import sys
import warnings
from typing import Final

# Others learn the number of the rule that a site's list, mask or table breaks, and nothing more.
_OF_A_SITE: Final = tuple(
    f"E1{number:02d}" for number in (1, 2, 3, 4, 5, 8, 9, 15, 22, 23, 38, 62, 63)
)

# Never renumber codes: scripts and people look them up in docs/errors.md.
CATALOGUE: Final[dict[str, str]] = {
    # 0nn: anything, settings
    "E000": "internal error; see the private log of this site.",
    "E010": "unknown setting '{setting}'{hint}",
    "E011": "{setting}={got}: allowed {allowed}; {do}",
    "E012": "settings contradict each other: {problem}; {do}",
    "E013": "setting '{setting}' is required; {do}",
    "E014": "the settings cannot be read; correct the file.",
    "E015": "{what} needs the package {package}; {do}",
    "E016": "the command cannot go on: {problem}; {do}",
    "E017": "the file is not a privacy.json of cape; name the one in the results folder.",
    "E018": "no settings can be proposed or sent: {problem}; {do}",
    "E020": "{what} needs {wing}, which is not installed here; install the whole package: pip install --force-reinstall coinstac-cape (the image leaves parts out).",
    "E021": "the system refuses a file: {why}.",
    # 1nn: rules of a site's data (docs/errors.md), what sites must agree on
    "E100": "The data of site {site} did not pass its own checks; see site-error.txt there.",
    **dict.fromkeys(
        _OF_A_SITE, "A list, mask or table of site {site} cannot be used; see its site-error.txt."
    ),
    "E139": "Site {site} cannot use {what}; see its site-error.txt.",
    "E124": "The {field} differs between sites: {sites}; map the same file at every site.",
    "E130": "The consortium has {got} subjects, n_components={allowed} needs more; lower n_components.",
    "E144": "The number of features differs between sites: {sites}; use the same features everywhere.",
    "E145": "{setting}={got} exceeds the limit {allowed}; {do}",
    "E149": "n_components={got}: allowed {allowed}; {do}",
    "E150": "{problem}; {do}",
    "E151": "Settings differ between sites: {sites}. All sites must run the owner's settings.",
    "E152": "{problem}; {do}",
    "E153": "Site {site} is below its own minimum of subjects; see min_subjects of its policy.",
    "E154": "Site policy of site {site} refuses this run.",
    "E155": "Versions differ between sites: {sites}. Install the same version everywhere.",
    "E156": "Site {site} is missing or answered late in {phase} round {round}; the run ends, nothing more is spent.",
    "E158": "The request cannot be read: {problem}.",
    "E160": "Seeds are for simulation only; site {site} has no simulation_seed in its policy; leave the seed out.",
    "E161": "Files changed during the run at site {site}; leave them as they are and start a new run.",
    "E165": "Site {site} has not confirmed whose files these are; run cape people there.",
    "E167": "Site {site} lacks the package that confound_strategy needs; install the extra 'confounds' there.",
    "E168": "Site {site} does not publish the counts of {column}; add public_counts = "
    '["{column}"], as its tables call it, to its own site policy, or leave it out of public.',
    # 2nn: protocol
    "E201": "{computation} has no phase '{phase}' here; allowed {allowed}.",
    "E202": "message refused: {problem}.",
    "E203": "round {seq} was already answered, and a different request for it arrived; start a new run.",
    "E204": "{field} differs: {sites}; the run ends, nothing was summed.",
    "E205": "expected seq {allowed}, got {got}; messages must come in order.",
    # 21n: state
    "E210": "state lost at {site}: {what} is missing or damaged; nothing is released again, start a new run.",
    # 22n: secure aggregation
    "E220": "secure sum failed: {problem}.",
    "E221": "the sum may reach 2^{got}, allowed is 2^62; lower a clip bound.",
    # 23n: budget
    "E230": "{what} needs mu {needed}, {remaining} of {budget} is left; {do}",
    "E231": "plan refused by site {site}: {problem}.",
    "E232": "a planned release is not possible: {problem}; {do}",
    "E233": "{phase} round {round} {problem}; nothing is released.",
    "E234": "{what} carries no noise: it has no budget and its epsilon is infinite; only private=false allows that.",
    "E235": "the ledger is damaged: {problem}; {do}",
    "E236": "Site {site} holds the rest of its total for another run that has not ended; nothing was spent. Start again when that run has ended; cape ledger at the site shows it.",
    "E237": "Site {site} has ended this run; nothing more is released. Start a new run.",
    "E238": "This run was silent too long, and site {site} gave the budget that it held to another run; nothing more is released. Start a new run.",
    "E239": "Site {site} begins no run of this owner: too many of the owner's exchanges were never answered, never charged, or refused by the site's total. People at the site can allow runs again with cape ledger forgive.",
    # 24n: engine of COINSTAC
    "E240": "an answer cannot be sent: {problem}.",
    "E241": "{problem}; {do}",
    "E248": "the engine called round {got}, but round {allowed} is due; nothing was released, start a new run.",
    # 25n: tables of records; comparisons without a guarantee (from 255)
    "E250": "The columns of the tables differ between sites: {sites}; use the same header everywhere, in the same order.",
    "E255": "{computation} gives no privacy: got private=true, allowed false; use capedjica for a private run.",
    "E256": "{computation} gives no guarantee and runs in simulations only: site {site} has no simulation_seed in its policy; use capedjica.",
    # 26n: site policies and files that outlive a round
    "E260": "Site policy of site {site} refuses this run: {setting}={allowed} there, got {got}; only people at the site can change its policy.",
    "E261": "{party} cannot write its files (disk full, read-only or gone?); nothing was sent, the same step may be asked again.",
    "E262": "Site {site} cannot rely on its ledger of all runs; nothing is released, see site-error.txt there.",
    "E263": "{party} is in use by another process; wait until that one is done.",
    "E264": "{problem}; {do}",
    "E265": "{party} was stopped before it answered; nothing was sent, the same step may be asked again.",
    "E266": "Site {site} has two policies with different seeds, data sets or ledgers; name these in one of them only.",
    "E267": "the site policy of site {site} cannot be used; its site-error.txt, or cape policy FILE there, says why; nothing runs without it.",
    "E268": "the site policy cannot be read; correct the file; nothing runs without it.",
    "E269": "ledger_file of the site policy lies among the mapped files, which last for one run; give its absolute path, in a folder that stays.",
    # 27n: labels of a finished result
    "E270": "templates need maps on a grid or on spheres, but this result is of kind {got}; label its columns by hand.",
    "E271": "the template image has {got}; allowed is a NIfTI image with 3 or 4 dimensions, for CIFTI results a dlabel.nii or dscalar.nii of the same surfaces; convert it.",
    "E273": "{got} names for {allowed} template maps; write one name a line, in the order of the volumes.",
    "E274": "the folder holds no result of joint ICA; name the folder that holds results.json and components.tsv.",
    "E275": "the public maps {got} are not all on this computer; let nilearn fetch them once, or give an image file.",
    "E276": "this result does not say that it is in MNI space, so the public maps {got} cannot be compared with it; run with the setting space, or give an image file.",
    # 28n: computations of one release
    "E280": "The templates at site {site} are missing or cannot be used; see site-error.txt there.",
    "E281": "the sites have {got} templates, n_components={allowed}; set n_components to the number of templates.",
    "E283": "The templates differ between sites: {sites}; map the owner's file at every site.",
    "E284": "{problem}; {do}",
    "E285": 'no site sends the public maps, which a site does only if its own policy names them; one site that knows them to be public writes public_maps = ["{got}"] into its site-policy.toml.',
    # 29n: containers
    "E290": "{problem}; {do}",
    # 30n: identity keys of sites
    "E300": "key_trust=pinned needs the files {files} at site {site}; make a key with cape keygen and exchange the public keys.",
    "E301": "{files} of site {site} changed since the run began; find out who changed them, then start a new run.",
    "E302": "{file} exists already, and a key in use is not replaced; choose another name.",
    "E303": "key_trust=pinned is not possible here; use key_trust=first-use.",
    "E304": "Site {site} has no place for files that outlive a run; set CAPE_SITE_HOME there to a folder that stays, or ledger_file in its policy.",
    "E305": "{problem}; ask that site for the key.json that cape keygen wrote.",
    "E306": "{sites} showed site {site} a different identity key than in earlier runs; ask them directly, not through the aggregator. If their computer is new, delete the line of that name in known_sites.jsonl at {site}; else start no run.",
    "E307": "Site {site} cannot rely on known_sites.jsonl, its list of the keys of other sites; restore it, or read its site-error.txt.",
    "E308": "{sites} never met site {site}, whose policy says allow_new_sites=false; only people at {site} can change its policy.",
    "E309": "{party} cannot be locked by its file system, so that two processes could answer at once; keep it on a disk of its own, CAPE_SITE_HOME as well.",
    # 31n: NVIDIA FLARE
    "E310": "{problem}; write it with cape flare site.",
    "E311": "The FLARE file of site {site} is missing or cannot be used; write it there with cape flare site.",
    "E312": "{problem}; {do}",
    # 32n: NeuroFLAME
    "E320": "{exchanges} exchanges take about {minutes} minutes in NeuroFLAME, with the reading so far ({reading}) {total}; it ends a run after {limit}: lower n_rounds, or have sites read less.",
    "E321": "the folder is no checkout of NeuroFLAME's boilerplate; name the folder that has makeJob.py and app/code/framework.",
}


# Hints at a file that exists only if the site has a folder
NO_FILE: Final = (
    "; see its site-error.txt",
    "; see site-error.txt there",
    ", see site-error.txt there",
)


class CapeError(Exception):
    """Base of all errors: a code with public values, and a `detail` that stays at its site.

    Parameters
    ----------
    code : str; as in docs/errors.md, such as "E013"
    detail : str; file names, shapes: for people who hold the data
    **fields : values of the placeholders in the public text

    Examples
    --------
    >>> try:
    ...     cape.Config.from_input({"epsilon": "much"})
    ... except cape.CapeError as err:
    ...     print(err.code)
    CAPE-E011
    """

    def __init__(self, code: str, *, detail: str = "", **fields: object) -> None:
        self.code = f"CAPE-{code}"
        self.detail = detail
        self.fields = fields
        self.public = f"{self.code} {CATALOGUE[code].format(**fields)}"
        super().__init__(self.public)

    def explain(self, *, file: bool) -> None:
        """Add `detail` to the text for people who hold the data; without `file`, drop file hints."""
        public = self.public
        for hint in () if file else NO_FILE:
            public = public.replace(hint, "")
        self.args = (f"{public}\n{self.detail}".rstrip(),)


class ConfigError(CapeError, ValueError):
    """A setting is unknown, out of range or contradicts another one."""


class DataError(CapeError):
    """The data of a site failed a check."""


class ProtocolError(CapeError):
    """A party did not follow the phase table of the computation."""


class OutOfPhaseError(ProtocolError):
    """The table does not allow this phase here; the run is unchanged."""


class MessageError(ProtocolError):
    """A message does not decode into its declared type."""


class ReplayError(ProtocolError):
    """A different request arrived for a round that was already answered."""


class ConsortiumError(ProtocolError):
    """Sites disagree about a value that must be equal; the text names the field and the sites."""


class StateLostError(CapeError):
    """Working state is missing or damaged; the run cannot go on without releasing again."""


class StoppedError(CapeError):
    """A party stopped before it answered; no data left it, and the step may be asked again."""


class SecureAggregationError(CapeError):
    """Bad key, masks that do not cancel, or a sum past its proven bound."""


class PrivacyBudgetError(CapeError):
    """A release does not fit the budget, or the policy of the site refuses it."""


class ReportedError(CapeError):
    """An error that another process or party reported by its public text."""

    def __init__(self, public: str, detail: str = "") -> None:
        super().__init__("E000", detail=detail)
        words = public.split(" ", 1)
        self.public = public if words[0].startswith("CAPE-") else f"CAPE-E000 {public}"
        self.code = self.public.split(" ", 1)[0]
        self.args = (self.public,)


class FoundError(ValueError):
    """A fault of a file, described by cape and not by a library."""


def own_words(err: Exception, otherwise: str) -> str:
    """Return the text of an error of cape, TOML or the system; `otherwise` for other errors."""
    from tomllib import TOMLDecodeError  # names the fault and its line

    if isinstance(err, OSError):
        return err.strerror or otherwise
    return str(err) if isinstance(err, FoundError | CapeError | TOMLDecodeError) else otherwise


class CapeWarning(UserWarning):
    """A finding that does not stop the run.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", cape.CapeWarning)  # warnings become errors
    """


class SubjectsWarning(CapeWarning):
    """People were left out, or parts of their data were cut.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", cape.SubjectsWarning)
    """


class PrivacyWarning(CapeWarning):
    """A figure promises less privacy than a reader may assume.

    Examples
    --------
    >>> issubclass(cape.PrivacyWarning, cape.CapeWarning)
    True
    """


class LabelsWarning(CapeWarning):
    """Several sites have people of the same labels, who count as different people."""


class NoiseWarning(CapeWarning):
    """The results of this run will mostly show noise, which its settings accept.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", cape.NoiseWarning)  # stop before the budget is spent
    """


def warn_caller(text: str, kind: type[CapeWarning]) -> None:
    """Warn at the line that called the package, not at one of its own."""
    level, frame = 1, sys._getframe()
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] == "cape":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, kind, stacklevel=level)


def public_text(err: BaseException) -> str:
    # Other exceptions may have data or paths in their text.
    if isinstance(err, CapeError):
        return err.public
    return f"CAPE-E000 {CATALOGUE['E000']}"
