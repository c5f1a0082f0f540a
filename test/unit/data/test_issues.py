"""The catalogue of rules: each has its texts, and what others read of it names nobody.

Belongs to `cape/data/issues.py`.
"""

from cape.data.issues import IssueCode
from cape.errors import CATALOGUE

NOTHING_ELSE = {IssueCode.MASK_UNREADABLE, IssueCode.TABLE_LINE}
"""Rules of a file that cannot be read at all: a whole one was expected."""


SAID_TO_ALL = {24, 44, 45, 51, 65, 67}
"""Rules whose public text says what all sites must agree on, or what the site has to do."""


def test_every_rule_of_the_catalogue_has_its_texts():
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
    said = {text.format(site="B", what="a column") for text in texts}
    assert said == {
        "A list, mask or table of site B cannot be used; see its site-error.txt.",
        "Site B cannot use a column; see its site-error.txt.",
    }
