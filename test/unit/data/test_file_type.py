"""What a file is, by its first bytes."""

import pytest

from cape.data.file_type import sniff


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\x1f\x8b\x08", "gzip"),
        (b"PK\x03\x04", "zip"),
        (b"\x93NUMPY", "NumPy array"),
        (b"\x80\x04\x95", "pickle"),
        (b"\x5c\x01\x00\x00" + bytes(348), "NIfTI"),
        (b"\x00\x00\x02\x1c" + bytes(540), "NIfTI"),
        (bytes(128) + b"DICM", "DICOM"),
        (b"hello\n", "text"),
        (b"\x00\x01\x02", "unknown"),
        (b"", "unknown"),
    ],
)
def test_files_are_known_by_their_first_bytes(head, kind):
    assert sniff(head) == kind
