"""``cape pairs``: left and right labels of an atlas, from the names of its table."""

import json

import nibabel as nib
import numpy as np
import pytest

from cape.cli import main
from cape.computations import load
from cape.computations.ica.mirror import mirror_of
from cape.data.label_table import read_label_table
from cape.errors import ConfigError
from cape.planning.label_pairs import compare_places, pair_names
from cape.space.feature_space import FeatureSpace

# Two left and right names of the same parcel, as the tables of atlases in use write them.
SCHEMES = {
    "AAL": ("Frontal_Sup_2_L", "Frontal_Sup_2_R"),
    "FreeSurfer volumes": ("Left-Thalamus-Proper", "Right-Thalamus-Proper"),
    "FreeSurfer surfaces": ("ctx-lh-bankssts", "ctx-rh-bankssts"),
    "labels of surfaces": ("lh.S_calcarine", "rh.S_calcarine"),
    "Schaefer": ("7Networks_LH_Vis_1", "7Networks_RH_Vis_1"),
    "Glasser": ("L_V1_ROI", "R_V1_ROI"),
    "Destrieux": ("L G_and_S_frontomargin", "R G_and_S_frontomargin"),
    "Harvard-Oxford": ("Left Frontal Pole", "Right Frontal Pole"),
    "Brainnetome": ("A8m_L(SFG)", "A8m_R(SFG)"),
    "CONN": ("FP l (Frontal Pole Left)", "FP r (Frontal Pole Right)"),
    "CIFTI": ("THALAMUS_LEFT", "THALAMUS_RIGHT"),
    "side in brackets": ("Hippocampus (left)", "Hippocampus (right)"),
    "small letters": ("hippocampus_lh", "hippocampus_rh"),
    "camels": ("thalamusLeft", "thalamusRight"),
    "camels before": ("LHThalamus", "RHThalamus"),
    "one word": ("leftthalamus", "rightthalamus"),
    "German and Greek": ("Gyrus präzentral β L", "Gyrus präzentral β R"),
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_sides_of_every_scheme_are_pairs_whatever_stands_between(scheme):
    left, right = SCHEMES[scheme]
    found = pair_names({7: right, 3: left, 9: "Vermis_3", 11: "Brain-Stem", 12: "Fornix"})
    assert found.pairs == ((3, 7),)
    assert (found.single, found.middle) == ((), (9, 11, 12))
    assert found.setting() == "3-7"
    assert pair_names({3: left, 9: "Vermis_3"}).single == (3,)


@pytest.mark.parametrize(("names", "single", "middle"), [
    ({1: "Area_L", 2: "Area_R", 3: "area-l"}, (1, 2, 3), ()),  # which of two?
    ({1: "Area_L", 2: "Aria_R"}, (1, 2), ()),
    ({1: "Left to right commissure", 2: "Right to left commissure"}, (), (1, 2)),
    ({1: "Vis_1", 2: "Vis_2", 3: "Lateral", 4: "Rolandic", 5: "Rhinal"}, (), (1, 2, 3, 4, 5)),
    ({1: "Area 1 L", 2: "Area 2 R"}, (1, 2), ()),
])  # fmt: skip
def test_what_is_no_pair_stays_alone(names, single, middle):
    found = pair_names(names)
    assert (found.pairs, found.single, found.middle) == ((), single, middle)


def test_letters_are_sides_only_where_words_are_not_enough():
    names = {1: "left area L", 2: "right area L", 3: "left area R", 4: "right area R"}
    assert pair_names(names).pairs == ((1, 2), (3, 4))


def atlas() -> tuple[FeatureSpace, dict[int, str]]:
    """Two true pairs, one whose places are no mirror images, and one side that is not there."""
    labels = np.zeros((13, 9, 9), np.int32)
    labels[1:3, 2:4, 2:4], labels[10:12, 2:4, 2:4] = 1, 2
    labels[1:3, 6:8, 2:4], labels[10:12, 6:8, 2:4] = 3, 4
    labels[3:5, 2:4, 6:8], labels[8:10, 6:8, 6:8] = 5, 6
    labels[6, 4, 4] = 9
    affine = np.diag([8.0, 8.0, 8.0, 1.0])
    affine[:3, 3] = -40.0, -30.0, -20.0  # x = 0 is not the plane between the sides
    names = {1: "L_A", 2: "R_A", 3: "L_B", 4: "R_B", 5: "L_C", 6: "R_C", 7: "L_D", 8: "R_D", 9: "M"}
    return FeatureSpace.of_labels("atlas", labels, affine), names


def test_pairs_are_where_the_mirror_image_of_the_other_is():
    space, names = atlas()
    found = compare_places(pair_names(names), space)
    assert found.pairs == ((1, 2), (3, 4))
    assert found.apart == ((5, 6),)
    assert (found.single, found.middle) == ((7, 8), (9,))
    crossed = names | {2: "R_B", 4: "R_A"}
    assert compare_places(pair_names(crossed), space).pairs == ()
    nowhere = pair_names({20: "L_A", 21: "R_A"})
    assert compare_places(nowhere, space).single == (20, 21)


def test_the_setting_is_what_a_run_reads(tmp_path, typed):
    space, names = atlas()
    image = nib.Nifti1Image(space.labels(), np.array(space.affine).reshape(4, 4))
    image.to_filename(tmp_path / "atlas.nii.gz")
    table = tmp_path / "atlas.tsv"
    table.write_text("index\tname\n" + "".join(f"{k}\t{n}\n" for k, n in names.items()))
    said = json.loads(
        typed("pairs", str(table), "--atlas", str(tmp_path / "atlas.nii.gz"), "--json").out
    )
    assert said["label_pairs"] == "1-2,3-4"
    given = {"feature_space": "atlas", "basis": "none", "label_pairs": said["label_pairs"]}
    sized = {"epsilon": 1, "delta": 1e-5, "n_components": 2}
    mirror = mirror_of(load("capegica").config.from_input(sized | given), space, space.n_features)
    swapped = np.zeros((7, 7))
    swapped[[0, 1, 2, 3], [1, 0, 3, 2]] = 1.0
    assert np.array_equal(mirror.weighed, swapped)
    out = typed("pairs", str(table)).out
    assert 'label_pairs = "1-2,3-4,5-6,7-8"' in out
    assert "4 pairs of 9 labels, by names only; --atlas compares places too" in out
    assert "without a side: 9 M" in out
    out = typed("pairs", str(table), "--atlas", str(tmp_path / "atlas.nii.gz")).out
    assert "paired by name, but not mirror images of each other: 5 L_C, 6 R_C" in out
    assert "with a side, but without one partner: 7 L_D, 8 R_D" in out


@pytest.mark.parametrize(("name", "text"), [
    ("a.tsv", "index\tname\tr\tg\tb\n1\tA L\t1\t2\t3\n2\tA R\t1\t2\t3\n"),
    ("a.csv", "\ufeffLabel,ROI\n1,A L\n2,A R\n"),  # the numbers are the column that has them
    ("a.csv", "number,hemisphere,region\n1,L,A\n2,R,A\n"),
    ("a.txt", "# No. Name R G B A\n0 Unknown 0 0 0 0\n1  A-L  220 216 20 0\n\n2 A-R 1 1 1 0\n"),
    ("cat12.csv", "ROIid;ROIabbr;ROIname;Voxel\n1;lA;Left A;9\n2;rA;Right A;9\n"),
    ("schaefer.csv", "ROI Label,ROI Name,R,A,S\n1,LH_Vis_1,-2,5,9\n2,RH_Vis_1,2,5,9\n"),
])  # fmt: skip
def test_tables_of_every_kind(tmp_path, name: str, text: str) -> None:
    (tmp_path / name).write_bytes(text.encode())
    assert pair_names(read_label_table(tmp_path / name)).pairs == ((1, 2),)


@pytest.mark.parametrize(("name", "text", "said"), [
    ("a.tsv", "x\ty\n1\t2\n", "no numbers or no names in columns x, y"),
    ("a.tsv", "index\tname\n", "no numbers or no names"),
    ("a.tsv", "index\tname\n1\tA L\n1\tA R\n", "label 1 stands twice"),
    ("a.tsv", "index\tname\n1\tA\tB\n", "cells"),
    ("AAL.xml", "<data><label><index>1</index><name>Insula_L</name></label></data>", "line 1"),
    ("AAL3v1.nii.txt", "1 Precentral_L 1\n2 Precentral_R 2\n", "write a .tsv"),
    ("itk.txt", '1 255 0 0 1 1 1 "A (left)"\n', "line 1"),
    ("a.txt", "", "no lines"),
    ("a.txt", "1 2 3\n4 5 6\n", "line 1"),  # numbers alone are no table of names
    ("a.txt", b"1 \xff 1 1 1 0\n", "utf-8"),
])  # fmt: skip
def test_another_file_is_refused_in_words(tmp_path, name, text, said, capsys):
    content = text if isinstance(text, bytes) else text.encode()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match="E018"):
        read_label_table(tmp_path / name)
    assert main(["pairs", str(tmp_path / name)]) != 0
    err = " ".join(capsys.readouterr().err.split())
    assert said in err
    assert "Traceback" not in err
