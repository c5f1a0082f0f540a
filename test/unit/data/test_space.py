"""The template space is what a name, a header or the owner says, and nothing is guessed from it."""

from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape.data.pipeline import inspect_site
from cape.data.space import mask_space, one_space, space_of
from cape.protocol.join import compare_cards
from cape.report.maps import write_maps
from cape.settings.config import Config
from cape.space.feature_space import FeatureSpace
from support.sites import load_site

CONFIG = Config(epsilon=1.0, delta=1e-5, min_timepoints=5, n_basis=4)
COARSE = np.diag([8.0, 8, 8, 1])
FINE = np.diag([4.0, 4, 4, 1])


def image(values: np.ndarray, affine: np.ndarray, code: int | str) -> nib.Nifti1Image:
    made = nib.Nifti1Image(values, affine)
    made.set_sform(affine, code=code)
    made.set_qform(None, code=0)
    made.header.set_xyzt_units("mm", "sec")
    made.header["pixdim"][4] = 2.0
    return made


def site(folder: Path, name: str, code: int | str, *, mask: str, mask_code: int | str) -> None:
    inside = np.ones((5, 6, 5), dtype=np.uint8)
    image(inside, COARSE, mask_code).to_filename(folder / mask)
    values = np.random.default_rng(2).normal(900, 30, (10, 12, 10, 12)).astype(np.float32)
    image(values, FINE, code).to_filename(folder / name)


@pytest.mark.parametrize(
    ("name", "code", "space"),
    [
        ("sub-1_space-MNI152NLin6Asym_bold.nii.gz", 2, "MNI152NLin6Asym"),
        ("tpl-MNI152NLin2009cAsym_res-02_desc-brain_mask.nii.gz", 0, "MNI152NLin2009cAsym"),
        ("sub-1_task-rest_space-T1w_bold.nii.gz", 4, "T1w"),  # the name knows better
        ("sub-1_bold.nii.gz", 4, "MNI152"),
        ("sub-1_bold.nii.gz", 3, "Talairach"),
        ("sub-1_bold.nii.gz", 2, ""),
        ("rat_atlas.nii.gz", 1, ""),
        ("myspace-MNI152_bold.nii", 2, ""),
    ],
)
def test_a_name_states_a_space_then_the_header(name, code, space):
    header = nib.Nifti1Header()
    header["sform_code"] = code
    assert space_of(name, header) == space
    header["sform_code"], header["qform_code"] = 0, code
    assert space_of(name, header) == space


def test_spaces_are_one_if_equal_or_one_says_mni_without_the_kind():
    kinds = ("MNI152NLin6Asym", "MNI152NLin2009cAsym", "MNI152", "T1w", "")
    pairs = {(a, b) for a in kinds for b in kinds if one_space(a, b)}
    assert pairs == {
        *((kind, kind) for kind in kinds[:4]),
        *((kind, "MNI152") for kind in kinds[:2]),
        *(("MNI152", kind) for kind in kinds[:2]),
    }


@pytest.mark.parametrize(
    ("name", "code", "mask_code", "setting", "verdict"),
    [
        ("sub-1_space-MNI152NLin6Asym_bold.nii", 4, 4, "", ""),  # fMRIPrep's, with default settings
        ("sub-1_bold.nii", 4, 4, "", ""),
        ("sub-1_space-T1w_bold.nii", 4, 4, "", "E119"),
        ("sub-1_space-MNI152NLin6Asym_bold.nii", 4, 2, "MNI152NLin2009cAsym", "E119"),
        ("sub-1_space-MNI152NLin6Asym_bold.nii", 2, 2, "MNI152NLin6Asym", ""),
        ("sub-1_space-rat_bold.nii", 2, 2, "rat", ""),
        ("sub-1_bold.nii", 2, 4, "", "E117"),  # nobody says of what the image is
        ("sub-1_bold.nii", 2, 2, "", "E117"),
    ],
)
def test_another_grid_of_the_same_space_is_resampled_and_another_space_refused(
    tmp_path, name, code, mask_code, setting, verdict
):
    """With default settings every image of fMRIPrep was refused as of another grid."""
    site(tmp_path, name, code, mask="mask.nii", mask_code=mask_code)
    found = inspect_site(tmp_path, {}, replace(CONFIG, mask="file", space=setting), site="B")
    if not verdict:
        assert found.accepted is not None, found.error
        assert found.subjects[0].grid == "resampled"
        return
    assert found.error.code == "CAPE-E100"  # what is in an image stays at the site
    assert f"CAPE-{verdict}" in found.error.detail
    if verdict == "E119":
        assert f"Expected images of {setting or 'MNI152'}" in found.error.detail
        forced = replace(CONFIG, mask="file", space=setting, resample="to_mask")
        assert inspect_site(tmp_path, {}, forced, site="B").accepted is None


def test_never_and_to_mask_mean_what_they_say(tmp_path):
    site(tmp_path, "sub-1_bold.nii", 2, mask="mask.nii", mask_code=2)
    config = replace(CONFIG, mask="file", resample="to_mask")
    assert load_site(tmp_path, {}, config, site="B").n_subjects == 1
    (tmp_path / "sub-1_bold.nii").unlink()
    site(tmp_path, "sub-1_bold.nii", 4, mask="mask.nii", mask_code=4)
    config = replace(CONFIG, mask="file", resample="never")
    assert inspect_site(tmp_path, {}, config, site="B").accepted is None


@pytest.mark.parametrize(
    ("mask", "code", "setting", "space", "written"),
    [
        ("MNI152-10mm", 0, "", "MNI152", 4),
        ("MNI152-10mm", 0, "MNI152NLin6Asym", "MNI152NLin6Asym", 4),
        ("file", 4, "", "MNI152", 4),
        ("tpl-MNI152NLin2009cAsym_res-02_mask.nii", 1, "", "MNI152NLin2009cAsym", 4),
        ("file", 2, "", "", 2),
        ("file", 2, "WHS", "WHS", 2),  # a rat's: no human labels, no human anatomy
        ("file", 2, "MNI152NLin6Asym", "MNI152NLin6Asym", 4),
    ],
)
def test_labels_anatomy_and_codes_follow_from_what_is_known(
    tmp_path, mask, code, setting, space, written
):
    """A true MNI mask file got no labels, and any mask under a bundled name was human."""
    if "MNI152-" not in mask:
        name = "mask.nii" if mask == "file" else mask
        image(np.ones((4, 4, 4), dtype=np.uint8), COARSE, code).to_filename(tmp_path / name)
    known = mask_space(replace(CONFIG, mask=mask, space=setting), tmp_path)
    assert (known.template_space, known.in_mni) == (space, written == 4)
    write_maps(tmp_path, "maps", np.ones((known.n_features, 1)), known, stamp="")
    assert int(nib.load(tmp_path / "maps.nii.gz").header["sform_code"]) == written


def test_an_atlas_beside_a_bundled_mask_is_no_human_atlas(tmp_path):
    labels = np.arange(27, dtype=np.int16).reshape(3, 3, 3)
    image(labels, COARSE, 2).to_filename(tmp_path / "atlas.nii.gz")
    known = mask_space(replace(CONFIG, feature_space="atlas"), tmp_path)
    assert not known.in_mni


def test_sites_that_say_other_spaces_of_one_mask_do_not_fit(make_card):
    labels = np.ones((2, 3, 2), dtype=np.int32)
    cards = {}
    for site_id, said in (("A", "MNI152"), ("B", "")):
        cards[site_id] = make_card(FeatureSpace.of_labels("mask", labels, COARSE, said))
    with pytest.raises(Exception, match="template space") as caught:
        compare_cards(cards, replace(CONFIG, min_sites=2))
    assert "A has MNI152, B has not said" in str(caught.value)


@pytest.fixture
def make_card():
    import os

    from cape.protocol.join import make_card

    class Source:
        n_subjects, tr_range = 5, (2.0, 2.0)

        def __init__(self, space: FeatureSpace) -> None:
            self.space = space

    return lambda space: make_card(
        "capedjica", CONFIG, Source(space), nonce=os.urandom(16), noise="os"
    )
