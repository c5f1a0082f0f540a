"""Every row of the table of bad inputs has a test that makes it.

Rows that can be made in files are in `support.defects` and in test_data_rows.py; all others
carry the marker `row`.

Belongs to `cape/data/issues.py`.
"""

from __future__ import annotations

import ast
from pathlib import Path

from cape.data.issues import IssueCode
from cape.errors import CATALOGUE
from support.defects import DEFECTS

TESTS = Path(__file__).resolve().parents[2]
LAST = 67


NOTHING_ELSE = {IssueCode.MASK_UNREADABLE, IssueCode.TABLE_LINE}
"""Rules of a file that cannot be read at all: a whole one was expected."""


SAID_TO_ALL = {24, 44, 45, 51, 65, 67}
"""Rules whose public text says what all sites must agree on, or what the site has to do."""


def rows_of(tree: ast.AST) -> dict[int, list[str]]:
    """Return the rows of the markers in a module, with the tests that carry them."""
    found: dict[int, list[str]] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.row":
                for number in mark.args:
                    found.setdefault(ast.literal_eval(number), []).append(node.name)
    return found


def covered_rows() -> set[int]:
    rows = {defect.row for defect in DEFECTS.values()}
    for path in TESTS.rglob("test_*.py"):
        rows |= set(rows_of(ast.parse(path.read_text(encoding="utf-8"))))
    return rows


def test_every_row_has_a_test():
    assert covered_rows() == set(range(1, LAST + 1))


def test_the_search_for_tests_sees_a_missing_one():
    text = "@pytest.mark.row(7, 9)\ndef test_a(): ...\n@pytest.mark.row(8)\ndef helper(): ..."
    assert rows_of(ast.parse(text)) == {7: ["test_a"], 9: ["test_a"]}


def test_every_rule_of_the_catalogue_has_a_row_and_its_texts():
    assert {code.number for code in IssueCode} <= covered_rows()
    for code in IssueCode:
        assert code.problem
        assert code.expected or code.severity == "W" or code in NOTHING_ELSE, code
        assert code.remedy or code.severity == "W", code


def test_a_rule_that_can_stop_a_site_has_a_sentence_for_others_that_names_no_file():
    for code in IssueCode:
        if code.severity == "W":
            continue
        # Content, which is what X and S are about, is the site's affair.
        key = "E100" if code.severity in "XS" else f"E1{code.number:02d}"
        assert code.public_key == key, code
        assert key in CATALOGUE, code


def test_of_a_list_a_mask_or_a_table_others_learn_the_number_and_the_site_and_nothing_more():
    stops = [code for code in IssueCode if code.severity == "E"]
    texts = {CATALOGUE[code.public_key] for code in stops if code.number not in SAID_TO_ALL}
    (text,) = texts
    said = text.format(site="B")
    assert said == "A list, mask or table of site B cannot be used; see its site-error.txt."
