"""The catalogue of rules for a site's data, and the findings of a site; see docs/errors.md.

Texts with names and numbers of the data stay at the site; only the fixed public sentence of a code
in `cape.errors.CATALOGUE` may leave.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Final, Literal

from cape.errors import CATALOGUE, DataError
from cape.frozen import dataclass

# E: a list, mask or table of the site cannot be used, which stops it.  X: a subject fails, and
# counts as zeros.  S: a fault of the people of the site as a whole.  W: a warning.  E depends on
# names; X and S depend on content, so they stop a site only if its own policy says so, or if more
# than half of its people fail (`Findings.stop_if_most_fail`).  R: a W about what is usual in data
# that are right.
Severity = Literal["E", "X", "S", "W"]
_Kind = Literal["E", "X", "S", "W", "R"]

# Fewer people who fail are never a fault of their site: to stop for one person would tell others
# about that person.
LEAST_OF_A_SITE: Final = 3

# Places named in one line; `Finding.places` has all of them.
MAX_PLACES: Final = 3

_RESAVE = (
    "save it again under its name as UTF-8 text, commas in a .csv, tabs in a .tsv: a header, "
    "a decimal point, equal rows"
)
# Of a line that a site is told to write
WHERE_IT_STANDS: Final = (
    "such lines stand first in the site's own site-policy.toml, each key once, before any line "
    "that begins with [; cape validate takes that file by --policy"
)
_CORRECT_TR = (
    "correct column 'tr' of the manifest, else RepetitionTime of the sidecar, else the header, "
    "whichever of them is there first, or leave the subject out"
)


class IssueCode(Enum):
    """The rules, one a line: number, severity, what is wrong, what was expected, the remedy.

    CAPE-E1nn stops the site, CAPE-W1nn warns or fails a subject; `strict` makes S, and too many X,
    E, and so does an X of more than half of the people.  Of several rules that the same people fail
    by the first explains the others.
    """

    # Several rules share a number: other sites read the same sentence about all of them.
    # fmt: off
    # ---- names and folders
    FILE_MISSING = (1, "E", "Files are missing", "files below {base}", "correct the names or put the files there")
    FILE_NAME = (1, "E", "An entry cannot be the name of a file", "parts of at most {most} bytes, at most {deepest} of them", "correct the name")
    FILE_UNREADABLE = (1, "E", "A file cannot be read", "a file that this user may read", "correct its permissions")
    FOLDER_UNREADABLE = (1, "E", "The site's folder, or something in it, cannot be read", "a folder that this user may read, under a name that can be one", "correct its permissions or its name, or mount it again")
    MANIFEST_MISSING = (1, "E", "The manifest is missing", "a table below {base}", "correct its name")
    MASK_MISSING = (1, "E", "The {kind} file is missing", "the {kind} that the owner sent, in the site's folder", "put it there")
    OUTSIDE_FOLDER = (2, "E", "A file lies outside the base directory", "only files inside the base directory, as relative names without '..'", "move or copy the files there, and list them by their names below it")
    MANIFEST_OUTSIDE = (2, "E", "The manifest lies outside the base directory", "a name inside it, without '..'", "copy it there")
    FOLDER_LISTED = (3, "E", "An entry is a folder", "a file", "list its files, or a glob such as 'sub-*/*.nii.gz'; a folder that is called like a file of data needs another name")
    NO_REGULAR_FILE = (3, "E", "An entry is a folder, a pipe, a socket or a device", "a file", "take it out of the folder")
    NO_FILES = (4, "E", "There are no data files", "at least one file of one subject", "list the files, correct the pattern or write a manifest.csv")
    NO_BIDS_MATCH = (4, "S", "No image of the BIDS folder fits bids_filter", "sub-*/[ses-*/]func/*_bold.nii.gz with {wanted}", "correct the folder, or ask the owner for another bids_filter")
    NO_BIDS_IMAGE = (4, "X", "A subject of the BIDS folder has no image that fits bids_filter", "an image with {wanted}", "leave the subject out of the folder, or ask the owner for another bids_filter")
    NO_LISTED_RUNS = (4, "E", "The manifest lists no runs", "at least one row without exclude = 1", "add rows")
    FILE_TWICE = (5, "E", "A file is listed twice: counted twice, a person is protected half as well", "every run once", "remove one of the two")
    DATA_TWICE = (5, "X", "The same data are listed twice, and count once: counted twice, a person would be protected half as well", "every subject once", "remove one of the two")
    RUN_TWICE = (5, "S", "The same values are listed as two runs: counted twice, a person is protected half as well", "every run once", "remove one of the two")
    PERSON_AGAIN = (5, "S", "Runs of two people have the same course in time: counted twice, a person is protected half as well", "every person once", "remove one of the two, or list both as one person's")
    RUN_AGAIN = (5, "W", "Two runs of a person have the same course in time: one run, made in two ways?", "every run once", "keep one of them (bids_filter, or exclude in the manifest)")
    SUBJECT_TWICE = (5, "E", "A subject is listed twice: counted twice, a person is protected half as well", "one row per subject", "remove one of the two")
    # ---- who is left out
    MARK_UNCLEAR = (38, "E", "A cell of column exclude is neither yes nor no", "1, true, yes or 0, false, no, empty, n/a; in participants.tsv also runs such as ses-2 or task-nback,ses-1_run-2", "write 1 (left out) or 0; a reason goes into a column notes")
    MARK_ELSEWHERE = (38, "E", "Something looks like a mark that leaves people out, and only column exclude is read", "one column exclude, 1 = left out", "move it into column exclude; if it means something else, write not_exclusions = [\"{name}\"] into the site's own site-policy.toml")
    MARKED_TWICE = (38, "E", "A name stands twice in a list, with different marks", "one answer", "give both lines the same mark; runs are named in the cell, such as ses-2")
    PEOPLE_OTHER = (38, "E", "A list with marks names no person who is here", "names such as {example}", "write the names as they are here, or move the list away")
    PERSON_ABSENT = (38, "R", "A marked person has no file here")
    MARKED_RUN_ABSENT = (38, "E", "A mark names a run that its person does not have", "words of the person's files", "write it as the files have it, or empty the cell")
    PERSON_UNNAMED = (38, "E", "A row or a path names no person", "whose it is", "fill it in, or remove it")
    PERSON_COLUMN = (39, "E", "A table of people does not say who is who", "a column participant_id", "call the column of the names participant_id")
    COLUMN_TWICE = (39, "E", "A list has two columns for one thing", "one", "remove one of the two")
    LIST_BESIDE = (39, "E", "A file looks like a list of people or of marks, and is not read", "one manifest.csv (or .tsv), and participants.tsv", "join it to that, move it out of the folder, or, if it leaves nobody out, write not_exclusions = [\"{name}\"] into the site's own site-policy.toml")
    # ---- who is compared with whom
    GROUP_COLUMN = (39, "E", "No table of people has a column of the comparison", "a column {column}", "write {line}, or the table that has it as tables = [\"volumes.tsv\"], or ask the owner for another column; " + WHERE_IT_STANDS)
    OUTCOME_COLUMN = (39, "E", "No table of people has an outcome of the comparison", "a column {column}", "write {line}, or the table that has it as tables = [\"volumes.tsv\"], or if the site does not have it, {lacks}; " + WHERE_IT_STANDS)
    SESSION_COLUMN = (39, "E", "The table of the outcomes has no sessions, which a change needs", "a column session_id", "add it")
    PERSON_FIRST = (39, "E", "participant_id is not the first column of a table of people", "participant_id first: no fault of a row may change whom it names", "move it")
    LEVEL_WORDS = (39, "E", "The site's own file writes two levels of a column alike", "one word a level", "correct levels in the site's own site-policy.toml")
    TABLE_WIDTH = (39, "E", "Most rows of a table of people have another number of cells than its header", "as many cells as the header has names", "{remedy}")
    COLUMN_UNUSABLE = (39, "E", "A column of the comparison cannot be used", "cells that most people have and that fit the settings", "{remedy}")
    LACKS_ALL = (39, "E", "The site states that it has no outcome of the comparison", "one outcome at least", "correct lacks in the site's own site-policy.toml, or leave this run out")
    COLUMN_AGAIN = (39, "E", "Several tables of people have a column of the comparison", "one table", "name the tables that count in the site's own site-policy.toml, such as tables = [\"participants.tsv\"]")
    OUTCOMES_APART = (39, "E", "The outcomes stand in several tables of people", "all in one table, whose rows are the people", "join the tables")
    GROUP_OTHER = (38, "E", "A table of people names no person who is here", "names such as {example}", "write the names as they are here, or name another table in the site's own site-policy.toml")
    GIFT_FILES = (39, "E", "Not one file of GIFT's results is there", "one *_postprocess_results.mat in the site's folder", "put it there, or name it in the site's own site-policy.toml, such as tables = [\"gica_postprocess_results.mat\"]")
    GIFT_NAMES = (38, "E", "No table says whose the rows of GIFT's results are, which have no names", "a table {names} beside them: a line participant_id, then a name a line, in the order of GIFT's list of input files", "write it; the order of participants.tsv may be another one")
    GIFT_FILE = (38, "E", "GIFT's results cannot be used", "{wanted}", "correct the table of names or the file, ask the owner for other networks, or save it again with save(..., '-v7')")
    GROUP_TWICE = (38, "W", "Rows of a person contradict each other in a column of the comparison, which is missing for that person", "one answer in all rows of a person; of a change, of its earlier session", "correct the rows")
    ROW_NOT_UTF8 = (38, "W", "A row of a table of people is not UTF-8, perhaps Latin-1 of a spreadsheet: its cells with such letters count as missing, the others are read", "UTF-8", "save the table as UTF-8 (CSV UTF-8)")
    ROW_BROKEN = (38, "W", "A row of a table of people cannot be read; its person stays counted", "a row with as many cells as the header", "correct the row")
    GROUP_FEW = (38, "W", "A level has fewer people here than min_group of the site's policy: they count as 0, and nothing of them is asked", "", "leave it, or change min_group in the site's own site-policy.toml")
    GROUP_NONE = (38, "W", "Cells of the comparison are of no level that the settings name; these people stay listed, and nothing is added for that column", "", "correct the cells if they are meant to be one of them")
    PERSON_NOWHERE = (38, "W", "A person is in no row of a table of people; the person stays counted and adds zeros", "", "add a row, or write the name as it is here")
    VALUE_NONE = (38, "W", "People have no value in a column of the comparison; an outcome of theirs is left out, or, of a column of the formula, they are", "", "fill the cells if the values are known")
    SESSION_SHORT = (38, "W", "A session of a person has too few volumes for a change; the person stays counted and adds zeros", "min_timepoints = {least} in each session", "lower min_timepoints (the owner), or add the session's other runs")
    OUTCOME_NONE = (38, "W", "A person's time courses give no outcome: one is constant, or the repetition time is too long or not known; the person stays counted and adds zeros", "", "look at the images")
    VALUE_UNCLEAR = (38, "W", "Cells of the comparison are no numbers, and count as missing", "numbers with a decimal point", "correct the cells; where 1,234 is no thousand, name the column in decimal_commas of the site's own site-policy.toml")
    COLUMN_OF_RUNS = (38, "R", "A column of the comparison follows from the runs whose outcomes are compared, and that of a table is not read", "", "give the column of the table another name if that one is meant")
    VALUE_FAR = (38, "W", "Values of an outcome lie far outside the range of the settings", "", "correct the cells")
    RANGE_WIDE = (38, "W", "Nearly all values of an outcome lie in a hundredth of the range of the settings, so its noise hides them", "", "ask the owner for a narrower range, or correct the column if it is in another unit")
    LEVEL_NOBODY = (38, "W", "Nobody here is of a level of the comparison", "", "leave it, or say how the table writes it (levels)")
    COVARIATE_CLIPPED = (38, "W", "Values of a column lie outside the range of the settings and count as its end", "", "correct the cells, or ask the owner for a wider range")
    MAPS_ALIKE = (38, "W", "Public maps are nearly one map: courses and connectivity of such a pair are mostly noise", "maps that correlate below .85", "tell the owner, who may leave one of each pair out")
    # ---- several of one
    NAMES_CONTRADICT = (65, "E", "Folder and name of a file say different things", "one label and one session, in the folder as in the name", "rename the one that is wrong")
    LABELS_ALIKE = (65, "E", "Labels look alike: one person, or two?", "labels that differ in more than case, signs, zeros and what cannot be seen", "write same_people = {both} into the site's own site-policy.toml if they are one person's, different_people = {both} if not")
    RUN_VERSIONS = (5, "S", "One run of a person is there in several versions, and the filter fits them all", "one file per run", "name one version in the settings (the owner): {filter}")
    RUN_STATED_TWICE = (5, "E", "Two files are stated as one run of a person", "one file per run", "say in which session or run they differ, or leave one out")
    PEOPLE_UNSTATED = (65, "E", "Nothing states whose the files are", "names of BIDS (sub-01/func/sub-01_task-rest_bold.nii.gz), a manifest.csv, or a layout", "type one of the commands of cape people FOLDER: --layout with {{subject}} in place of the person's label ({{session}}, {{run}}, * for the rest), or --write manifest.csv to fill in; of several sites, for each site's folder by itself")
    LAYOUT_FITS_NONE = (65, "E", "The layout of the site's own file fits no file", "the path of a file below the folder, with {{subject}} in place of the label", "type cape people FOLDER --layout again")
    LAYOUT_TWO_WAYS = (65, "E", "The layout fits a path in two ways, so that it does not say who the person is", "{pattern}", "write more of the path, and * once at most between two signs")
    TWO_SOURCES = (39, "E", "Two things state the people, and they differ", "one of names of BIDS, a manifest and a layout", "remove the manifest, or take the line layout out of site-policy.toml; or add the runs to the manifest, with exclude = 1 where they are left out")
    CONVERT_FIRST = (9, "E", "The series are in a format that must be converted first", "NIfTI, CIFTI, or tables", "convert them, for instance by {command}")
    NAMES_HIDE_FILES = (62, "E", "Mapped files have the same base name, so that one hides the other", "a base name of its own for every file", "rename the files")
    SEVERAL_SOURCES = (39, "E", "Files are given in several ways", "exactly one of {sources}", "remove the others")
    OWNERS_SETTING = (51, "E", "A site gives files only; every other setting is the owner's", "{sources}", "remove it")
    # ---- what a file is
    FILE_EMPTY = (7, "X", "A file is empty", "an image or a matrix", "copy or convert it again")
    FILE_POINTER = (8, "E", "A file is a pointer, its content is not here", "the content", "fetch the content first: git lfs pull, or datalad get")
    FILE_TYPE_UNUSABLE = (9, "E", "A file is not of a type that this feature space can use", "{accepted}", "convert it, or leave it out")
    FILE_TYPE_OTHER = (9, "E", "A file is of another type than its name says", "{promised}", "convert or rename it")
    FILE_TOO_LARGE = (9, "X", "A file is too large to be one run", "at most {most} bytes", "save one run per file, as float32")
    PAIR_WITHOUT_HEADER = (9, "X", "An .img file has no header beside it", "a NIfTI pair, .hdr and .img", "copy both, or convert it to .nii.gz")
    SURFACE_DATA = (63, "E", "A file holds surface data, and this feature space is of volumes", "volumetric images", "use the volumetric images, or ask the owner for feature_space = grayordinates or parcels")
    CIFTI_OTHER = (63, "X", "A file is not of the kind of CIFTI that this feature space is of", "{wanted}", "use the files that the feature space is of, or ask the owner for another feature_space")
    GRAYORDINATES_OTHER = (17, "X", "The grayordinates of a file are not those of the owner's structure", "{wanted}", "use the files of that space and density (bids_filter), or ask the owner for their structure")
    PARCELS_OTHER = (17, "X", "The parcels of a file are not those of the owner's structure", "{wanted}", "use the same parcellation, in the same order")
    # ---- images
    HEADER_DAMAGED = (9, "X", "The header of an image is damaged", "a NIfTI header", "convert it again")
    GZIP_DAMAGED = (10, "X", "A compressed image is truncated or damaged", "a whole file", "copy or compress it again")
    IMAGE_TRUNCATED = (11, "X", "An image is truncated", "{needed}", "copy it again")
    IMAGE_NO_SERIES = (12, "X", "An image is not a 4-D series", "a 4-D series (x, y, z, time)", "join the volumes of the run into one 4-D file")
    IMAGE_MORE_AXES = (13, "X", "An image has more than four axes", "x, y, z, time", "save one 4-D series per run")
    IMAGE_SQUEEZED = (13, "R", "Axes of length 1 were squeezed")
    IMAGE_NO_SIGNAL = (14, "X", "An image does not hold a real signal", "real numbers", "save the magnitude as float32")
    AFFINE_MISSING = (15, "X", "An image has no affine, so its position is unknown", "sform or qform", "save it with its affine; if it was made on the mask's grid, write trust_grid = 1 in the manifest")
    AFFINE_TRUSTED = (15, "R", "An image has no affine; the mask's was taken, as the manifest says")
    AFFINES_FLIPPED = (16, "X", "The two affines of an image disagree about left and right", "the same axes", "set both to the one you checked by eye")
    AFFINES_DIFFER = (16, "R", "The two affines of an image differ; sform was used", "at most {most:.2g} mm")
    GRID_OTHER = (17, "X", "Image grid differs from the consortium mask", "{shape}, {voxel:.1f} mm", "resample it to the mask; of normalised images say the space, in the name (space-MNI152NLin6Asym) or in the header (sform code 4)")
    IMAGE_ANALYZE = (9, "X", "An image is no NIfTI but ANALYZE, which does not say where left is", "NIfTI", "write it again as NIfTI with the program that made it; fslchfiletype NIFTI_GZ keeps an order that is not known")
    NATIVE_IMAGE = (21, "X", "An image is in native space: other people's voxels lie elsewhere on its grid", "images normalised to the space of the mask", "use the normalised images; if it is one, say the space in its name (space-MNI152NLin6Asym) or in its header (sform code 4)")
    NATIVE_GRIDS = (21, "S", "Images of no stated space lie on grids that differ from person to person: in native space?", "one grid, or a space in names or headers", "use the normalised images; if they are, say the space in their names (space-MNI152NLin6Asym) or headers (sform code 4)")
    GRID_RESAMPLED = (17, "R", "An image on another grid was resampled to the mask's", "{shape}, {voxel:.1f} mm")
    GRID_ROUNDED = (18, "R", "Affine differs from the mask's by rounding, accepted", "at most {most:.2g} mm")
    VOLUME_SIZE = (18, "X", "An image is as wide as no head: another unit?", "{least:g} to {most:g} mm", "write it again with its affine in mm")
    PLACE_OTHER = (19, "X", "Image lies elsewhere than the consortium mask", "at most {most:.2g} mm", "another MNI variant? Use the images of the mask's space")
    SPACE_OTHER = (19, "X", "An image is of another template space than the mask", "images of {space}", "use the images of that space (bids_filter), or ask the owner for a mask of theirs")
    PLACE_RESAMPLED = (19, "R", "An image on another grid was resampled to the mask's", "at most {most:.2g} mm")
    AXES_TURNED = (20, "R", "Axes were flipped or swapped to the mask's")
    IMAGE_TURNED = (21, "X", "An image is turned, and its header does not say so", "a mean image that fits the mask as the header says", "export it again with its right orientation, and look whether left and right are: that cannot be told here")
    # ---- mask and atlas
    MASK_AFFINE_MISSING = (15, "E", "The {kind} has no affine", "a space", "save it with its affine")
    MASK_AFFINE_SINGULAR = (15, "E", "The {kind} has an affine that no grid can have", "an invertible affine", "save it with its affine")
    MASK_UNREADABLE = (22, "E", "The {kind} cannot be read", "", "copy it again")
    MASK_AXES = (22, "E", "The {kind} is not one volume", "three axes", "use the {kind} that the owner sent")
    MASK_RANGE = (22, "E", "The mask holds numbers outside 0 to 1", "0 and 1", "save it as 0 and 1")
    MASK_NOT_BINARY = (22, "R", "The mask is not binary; voxels above 0.5 are inside", "0 and 1")
    ATLAS_LABELS = (22, "E", "The atlas holds numbers that are no labels", "whole numbers, 0 outside", "use a label image, not probabilities")
    MASK_EMPTY = (23, "E", "The {kind} is empty", "voxels above 0", "use the {kind} that the owner sent")
    MASK_SQUEEZED = (23, "R", "The {kind} has a fourth axis of length 1, squeezed")
    MASK_FULL = (23, "R", "The mask has all voxels inside")
    MASK_OTHER = (24, "E", "The {kind} is another one than the owner's", "mask_hash = {wanted}, the SHA-256 of the file or the hash that cape validate prints", "use the owner's file, or ask the owner for another mask_hash")
    MASK_TOO_LARGE = (45, "E", "The mask has too many voxels", "at most {most}", "use a grid of 1 mm or coarser")
    FEATURES_TOO_MANY = (45, "E", "There are too many features for a run without a basis", "at most {most}", "use fewer parcels, a basis, or raise max_features")
    # ---- array files
    ARRAY_TRUNCATED = (11, "X", "An array file is truncated or damaged", "as many as its header says", "copy it again")
    ARRAY_NO_NUMBERS = (14, "X", "An array does not hold real numbers", "integers or floats", "save the magnitude as a full matrix of real numbers (float32)")
    ARRAY_NO_MATRIX = (40, "X", "An array is not a matrix", "two axes, features and time", "save one matrix per run")
    ARRAY_PICKLED = (40, "X", "An array file holds Python objects, which are never unpickled", "a plain array of numbers", "re-save as a float array")
    MAT73_NO_READER = (41, "X", "A .mat file is of version 7.3", "version 5 to 7", "install the extra matlab73 (pip install 'coinstac-cape[matlab73]'), or save it with save(..., '-v7')")
    MAT73_DAMAGED = (41, "X", "A .mat file of version 7.3 cannot be used", "a whole file with a full matrix of real numbers", "copy it again, or save it with save(..., '-v7')")
    MAT_OLD = (41, "X", "A .mat file is of version 4", "version 5 to 7", "in MATLAB: x = load(FILE); save(FILE, '-struct', 'x', '-v7')")
    NO_VARIABLE = (42, "X", "An array file lacks the variable {variable}", "a matrix named {variable}", "save it as {how}, or ask the owner for another 'variable'")
    TRANSPOSED = (43, "X", "A matrix seems to be transposed", "{n_features} features", "transpose it, or ask the owner for the other orientation")
    FEATURES_DIFFER = (44, "X", "A matrix has another number of features than the others", "{n_features} features", "use the same features everywhere")
    COLUMNS_DIFFER = (44, "X", "The columns of a table have other names than those of the others", "'{wanted}' as in {first}", "use the same header everywhere, in the same order")
    COLUMNS_UNEQUAL = (44, "W", "The columns of a table have other names than those of the others; they are not compared, as the owner names no columns", "'{wanted}' as in {first}", "ask the owner to name the columns (setting columns), or use the same header everywhere")
    PARCELS_UNNAMED = (44, "X", "The columns of a table are not named as the parcels of the atlas", "{wanted}", "head the columns with the numbers of the labels, or put their names into atlas.tsv beside the atlas")
    RECORDS_DIFFER = (44, "E", "Tables of one site have other columns", "the same header", "use the same columns, in the same order")
    # ---- tables of text
    TABLE_NOT_UTF8 = (38, "E", "A table is not UTF-8 text", "UTF-8", _RESAVE)
    TABLE_TOO_LARGE = (38, "E", "A table is too large to be one", "at most {most} bytes", "use fMRIPrep's own file, or fewer columns")
    TABLE_EMPTY = (38, "E", "A table is empty", "a header and rows", _RESAVE)
    TABLE_LINE = (38, "E", "A line of a table cannot be read", "", _RESAVE)
    TABLE_SEPARATOR = (38, "E", "A table is separated by another character than its name says", "{separator} between cells", "save it again with {separator} between cells, under the same name")
    TABLE_RAGGED = (38, "E", "Rows of a table have another number of cells than its header", "{n_cells} cells", _RESAVE)
    TABLE_NO_HEADER = (38, "E", "A table has no header", "a first line with the names of the columns", "add a first line with the names of the columns, such as r1,r2,r3")
    TABLE_CELL = (38, "E", "A cell of a table is not a number", "numbers with a decimal point", _RESAVE)
    TABLE_COLUMN_EMPTY = (38, "X", "A column of a table has no number", "a number in every row", "a parcel that the images do not cover has none: take its column out of the tables of all people (and its label out of the atlas), or leave the person out")
    TABLE_NAMES = (38, "E", "A table has columns without a name or with the same", "a name for every column", "name every column once; take a first column out that only counts the rows")
    RECORDS_EMPTY = (38, "E", "A table has no rows or no columns", "a header, then one row per subject: its name, then numbers", _RESAVE)
    MANIFEST_NO_FILE = (38, "E", "A row of a table names no file", "a name in column 'file'", "fill or remove it")
    MANIFEST_CELL = (38, "E", "A cell of column '{column}' is not a number", "{wanted}", "write 2.5, not 2,5 or '2.5 s'")
    MANIFEST_MASK = (39, "E", "The manifest has a column 'mask'", "one mask for the whole consortium, set by the owner", "remove the column")
    MANIFEST_COLUMNS = (39, "R", "The manifest has unknown columns, which are not used", "{columns}", "rename or remove them")
    MANIFEST_NO_COLUMN = (39, "E", "The manifest needs the columns participant_id and file", "{columns}", "name the columns so")
    # ---- confounds and filters
    TR_UNKNOWN = (32, "R", "The repetition time is not known", "", "write it into column 'tr' of the manifest")
    TR_NEEDED = (32, "X", "The repetition time is not known, but a filter needs it", "seconds", "write it into column 'tr' of the manifest")
    TR_CONVERTED = (33, "W", "The repetition time was converted to seconds", "seconds")
    CONFOUND_ROWS = (36, "X", "A confound table has another number of rows than its run has volumes", "one row per stored volume; dummies are dropped from both", "use the table that belongs to the image, with its first rows")
    CONFOUNDS_MISSING = (37, "X", "A run has no confound table, but confounds are to be regressed out", "a table with {columns}", "put it beside the image, name it in the manifest, or leave the run out")
    CONFOUND_COLUMNS = (37, "X", "A confound table lacks columns", "{columns}", "add the columns, or ask the owner for others")
    CONFOUND_CELL = (37, "X", "A cell of a confound table is not a number", "a number in every row; n/a in the first one only", "correct the table, or ask the owner for other columns")
    CONFOUND_FILLED = (37, "R", "Empty cells in the first row of a confound table count as 0")
    CONFOUND_STRATEGY = (37, "X", "The confounds of a run cannot be had as confound_strategy asks", "tables of fMRIPrep beside the image, as nilearn's load_confounds wants them for {strategy}", "run the step again that writes them, leave the run out (exclude in participants.tsv), or ask the owner for another confound_strategy")
    NO_NILEARN = (67, "E", "confound_strategy needs nilearn, which is not installed", "{strategy}", "install the extra confounds (pip install 'coinstac-cape[confounds]')")
    RUN_SCRUBBED = (65, "R", "Scrubbing leaves nothing of a run, which is left out")
    NOTHING_LEFT = (64, "X", "Confounds and filters remove all of a run", "at least {least} time points more than signals", "use fewer confounds or a wider pass band (the owner), or leave the run out")
    # ---- the data of one subject
    SUBJECT_BREAKS = (1, "X", "The files of a subject break the program that reads them", "files that can be read", "save them again; if that does not help, report the text above without the data")
    ALL_NAN = (25, "X", "A subject is NaN everywhere: no value was written", "numbers", "run the step again that wrote it")
    NAN_TOO_MANY = (25, "X", "A subject has too many NaN or infinite values", "none; at most {most:g} %", "convert it again")
    NAN_FILLED = (25, "R", "NaN or infinite values were set to the mean of their feature", "none; at most {most:g} %", "convert it again")
    CONSTANT_TOO_MANY = (26, "X", "A subject has too many constant features", "at most {most:g} %", "check mask and preprocessing")
    CONSTANT_ZEROED = (26, "R", "Constant features were set to 0", "at most {most:g} %", "check mask and preprocessing")
    NO_SIGNAL = (27, "X", "A subject is constant or zero everywhere", "a signal", "convert it again, or leave it out")
    COVERAGE_LOW = (28, "X", "A subject does not cover the mask", "at least {least:g} %", "check field of view and normalisation; images in native space do not fit")
    COVERAGE_PART = (28, "R", "A subject does not cover the mask", "at least {least:g} %", "check field of view and normalisation")
    TIME_CUT = (29, "R", "Time points past max_timepoints are not used", "at most {most}")
    COLUMN_OF_TIME = (29, "W", "A column of a table only rises, as time does, and counts as a feature", "regions alone", "leave the column out of every table")
    TIME_SHORT = (29, "X", "A subject has too few time points", "{limits}", "lower n_components or min_timepoints (the owner), or leave the subject out (exclude in participants.tsv)")
    SCRUBBED_SHORT = (65, "X", "Scrubbing leaves too little of a subject", "{limits}", "leave the subject out, or ask the owner for another fd_threshold or limit")
    MINUTES_FEW = (29, "X", "A subject has too few minutes", "min_minutes = {least:g}", "leave the subject out, or ask the owner for another min_minutes")
    MOTION_HIGH = (66, "X", "A subject moved more than the limit", "a mean framewise displacement of at most max_mean_fd = {most:g} mm", "leave the subject out, or ask the owner for another max_mean_fd")
    TR_OTHER = (34, "X", "The repetition time of a subject is not that of the settings", "{tr:g} s (tr)", _CORRECT_TR + "; if all people of the site have it, ask the owner for that tr")
    VOLUMES_EMPTY = (35, "W", "Volumes of a subject are zero everywhere, and outweigh all others", "a signal in each", "convert it again, or scrub them")
    DUMMY_SCANS = (35, "R", "The first volume differs from the others: dummy scans?", "z below {most:g}", "write n_dummy in the manifest, or ask the owner for drop_first_volumes")
    RANK_LOW = (48, "X", "A subject has a lower rank than there are components", "at least n_components = {n_components}", "use data with fewer signals removed, or lower n_components (the owner)")
    # ---- the site as a whole
    NATIVE_SPACE = (21, "S", "Most subjects have no signal in half of the mask: not in the common space?", "images normalised to MNI152", "use the normalised images, not those in native space")
    SUBJECTS_FEW = (30, "R", "The site has fewer subjects than there are components", "n_components = {n_components} or more; the consortium as a whole must have them")
    TR_DIFFERS = (34, "W", "The repetition time differs", "{middle:g} s (most subjects)", _CORRECT_TR)
    NO_ROOM = (46, "S", "There is too little {what}", "{needed:.0f} MB or more", "free some, use a larger computer, or ask the owner for a smaller n_basis")
    # fmt: on

    def __init__(
        self, number: int, kind: _Kind, problem: str, expected: str = "", remedy: str = ""
    ) -> None:
        self.number, self.problem, self.expected, self.remedy = number, problem, expected, remedy
        self.severity: Severity = "W" if kind == "R" else kind
        self.is_remark = kind == "R"

    @property
    def public_key(self) -> str:
        # For content other sites learn only that a check failed, not which.
        return f"E1{self.number:02d}" if self.severity == "E" else "E100"


# Rules that all images of a program's output break alike, by their grid
_OF_GRIDS: Final = (17, 18, 19)


@dataclasses.dataclass(frozen=True, slots=True)
class Issue:
    """A rule that one file breaks, the observation, and values for the texts of the rule."""

    code: IssueCode
    observed: str
    values: Mapping[str, object] = field(default_factory=dict)
    what: str = ""  # public: what of the site's files cannot be used

    def verdict(self, where: str = "") -> UnusableFile:
        return UnusableFile(self.code, f"{where}{self.observed}", self.what, **self.values)


class UnusableFile(Exception):  # noqa: N818 - no error of ours: the verdict on one file
    """An issue of a file that cannot be used; the caller adds the name of the file."""

    def __init__(self, code: IssueCode, observed: str, what: str = "", /, **values: object) -> None:
        super().__init__(code.problem)
        self.issue = Issue(code, observed, values, what)


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One problem with all its places; only `public` may leave, empty unless the site stops."""

    code: str
    severity: Severity
    private: str
    public: str
    places: tuple[str, ...] = ()  # each with what was found there; private, too
    n_named: int = 0  # how many of them `private` names
    is_remark: bool = False  # no reason by itself to write to a site's staff


@dataclasses.dataclass(kw_only=True, slots=True)
class _Entry:
    code: IssueCode
    severity: Severity
    problem: str
    expected: str
    remedy: str
    public: Mapping[str, object]
    content: bool  # about people's files, not the site's lists
    places: list[str] = field(default_factory=list)

    @property
    def kind(self) -> tuple[object, ...]:
        return self.code, self.severity, self.problem, self.remedy

    def public_sentence(self, site: str) -> tuple[str, dict[str, object]]:
        """Return the key of the public sentence and its fields."""
        key = "E100" if self.content else self.code.public_key
        return key, {"site": site, "what": "a list or table", **self.public}


class Findings:
    """The problems of one site, equal ones joined; `strict`: content may stop it, too."""

    def __init__(self, site: str, *, strict: bool = False) -> None:
        self.site, self.strict = site, strict
        self.left_out: tuple[str, ...] = ()  # one text for each list with marks; private
        self.most_fail = False  # a fault of the whole site: only its causes are told
        self._people: dict[IssueCode, set[str]] = {}  # who fails by which rule
        self._entries: list[_Entry] = []

    def add(
        self,
        code: IssueCode,
        place: str = "",
        *,
        public: Mapping[str, object] | None = None,
        of_subject: bool = False,
        stops: bool = True,
        person: str = "",
        **values: object,
    ) -> Severity:
        """Note a problem; `place` and `values` are private, `public` holds public things only.

        In a file `of_subject` an E becomes an X: the subject fails, not the site.  Without `stops`
        an E is only told.  `person`: the label of the subject who fails by an X.
        """
        severity: Severity = "X" if of_subject and code.severity == "E" else code.severity
        if severity == "E" and not stops:
            severity = "W"
        if person and severity == "X":
            self._people.setdefault(code, set()).add(person)
        content = severity != "E"
        if severity == "S":
            severity = "E" if self.strict else "W"
        entry = _Entry(
            code=code,
            severity=severity,
            problem=code.problem.format(**values),
            expected=code.expected.format(**values),
            remedy=code.remedy.format(**values),
            public=public or {},
            content=content,
        )
        # One line for each kind of problem, not for each file.
        first = next((e for e in self._entries if e.kind == entry.kind), None)
        if first is None:
            self._entries.append(entry)
        elif first.expected != entry.expected:
            # Expectations that differ between files are noted at the file.
            place = f"{place} (expected {entry.expected})"
        (first or entry).places.append(place)
        return severity

    def add_issue(
        self, issue: Issue, name: str = "", *, of_subject: bool = False, person: str = ""
    ) -> Severity:
        place = ": ".join(text for text in (name, issue.observed) if text)
        public = {"what": issue.what} if issue.what else None
        return self.add(
            issue.code,
            place,
            public=public,
            of_subject=of_subject,
            stops=True,
            person=person,
            **issue.values,
        )

    def why(self, passed: Collection[str]) -> dict[str, int]:
        """Return how many people fail by each rule, most first; `passed`: labels of the others.

        A text names the rule and its limit, without a name or a value of a person.
        """
        failed = {code: len(people.difference(passed)) for code, people in self._people.items()}
        reasons = {}
        for code, n in sorted(failed.items(), key=lambda item: -item[1]):
            entry = next(entry for entry in self._entries if entry.code is code)
            problem = f"{code.problem[0].lower()}{code.problem[1:]}"
            reasons[f"{problem}; expected {entry.expected}" if entry.expected else problem] = n
        return {reason: n for reason, n in reasons.items() if n}

    def stop_if_most_fail(self, passed: Collection[str], n_listed: int) -> None:
        """Stop the site if more than half of the people fail, strict or not.

        That is a fault of the site, or a limit that does not fit its data, and not of people: the
        site is told the fewest rules that explain it, and nothing else, before it is charged.
        Others read that it stopped, and not by which rule.
        """
        n_failed = n_listed - len(passed)
        if n_failed < LEAST_OF_A_SITE or 2 * n_failed <= n_listed:
            return
        # In the order of the catalogue, in which later rules may follow from earlier ones
        failed = {
            code: self._people[code].difference(passed)
            for code in IssueCode
            if code in self._people
        }
        said: set[str] = set()
        while failed and 2 * (n_failed - len(said)) > n_listed:
            code = max(failed, key=lambda code: len(failed[code] - said))
            if failed[code] <= said:
                break
            said |= failed[code]
            n = len(failed[code])
            self.escalate(f"{n} of {n_listed} people of this site fail by this rule", code)
            self.most_fail = True

    def escalate(self, reason: str, code: IssueCode | None = None) -> None:
        """Make every failure, or those by one rule, a stop and say why."""
        for entry in self._entries:
            if entry.severity == "X" and code in (None, entry.code):
                entry.severity = "E"
                entry.problem = f"{entry.problem} ({reason})"

    @property
    def blocked(self) -> bool:
        return any(entry.severity == "E" for entry in self._entries)

    def blocked_beside(self, codes: Collection[IssueCode]) -> bool:
        """Tell whether anything but `codes` stops the site."""
        return any(e.severity == "E" and e.code not in codes for e in self._entries)

    def listing(self) -> tuple[Finding, ...]:
        return tuple(self._finding(entry) for entry in self._sorted())

    def raise_if_blocked(self) -> None:
        """Raise DataError with the public text of the worst finding if the site must stop."""
        if not self.blocked:
            return
        key, fields = self._sorted()[0].public_sentence(self.site)
        listing = self.listing()
        # Of a fault of all one line: the names are those of the list.
        told = "\n".join(f.private for f in listing) if self.most_fail else in_full(listing)
        raise DataError(key, detail=told, **fields)

    def _sorted(self) -> list[_Entry]:
        # Problems of lists come before failures that stop the site only by their number.
        def rank(entry: _Entry) -> tuple[int, bool, int]:
            return "EXW".index(entry.severity), entry.content, entry.code.number

        entries = (e for e in self._entries if not self.most_fail or e.severity == "E")
        return sorted(entries, key=rank)

    def _finding(self, entry: _Entry) -> Finding:
        code = f"CAPE-{'E' if entry.severity == 'E' else 'W'}1{entry.code.number:02d}"
        places = list(dict.fromkeys(place for place in entry.places if place))
        found, names = _alike(places) if entry.code.number in _OF_GRIDS else ("", places)
        n_named = 1 if found and len(places) > MAX_PLACES else MAX_PLACES
        more = len(places) - n_named
        parts = [f"{code} {entry.problem}" + ("" if entry.problem.endswith("?") else ".")]
        if places:
            head = f"{len(places)} times{found}: " if more > 0 or found else ""
            shown = head + "; ".join(names[:n_named]) + (f"; and {more} more" * (more > 0))
            parts.append(shown if shown.endswith(("?", ".")) else f"{shown}.")
        if entry.expected:
            parts.append(f"Expected {entry.expected}.")
        if entry.remedy:
            parts.append(f"Fix: {entry.remedy}.")
        key, fields = entry.public_sentence(self.site)
        sentence = f"CAPE-{key} {CATALOGUE[key].format(**fields)}"
        return Finding(
            code=code,
            severity=entry.severity,
            private=" ".join(parts),
            public=sentence if entry.severity == "E" else "",
            places=tuple(places),
            n_named=n_named,
            is_remark=entry.code.is_remark,
        )


def in_full(findings: Iterable[Finding]) -> str:
    """Return findings as lines, each followed by the places that it does not name."""
    lines = []
    for finding in findings:
        lines.append(finding.private)
        lines += [f"    {place}" for place in finding.places[finding.n_named :]]
    return "\n".join(lines)


def _alike(places: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return what was found at all places alike, after a comma, and the places without it.

    Names of files stand without folders if they differ without.
    """
    cut = [place.rpartition(": ") for place in places]
    if len(places) < 2 or len({found for _, _, found in cut}) > 1 or not cut[0][0]:
        return "", places
    names = [name.rpartition("/")[2] for name, _, _ in cut]
    if len(set(names)) < len(names):
        names = [name for name, _, _ in cut]
    return f", {cut[0][2]}", names
