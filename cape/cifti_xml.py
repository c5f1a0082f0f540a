"""XML of CIFTI and GIFTI files, refused unless it can be parsed in linear time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cape.errors import FoundError

if TYPE_CHECKING:
    from nibabel.cifti2.cifti2_axes import Axis

# Bytes of the XML; that of 91,282 grayordinates has 0.6 million.
MAX_XML_BYTES: Final = 2**25


def plain_xml(xml: bytes) -> bytes:
    """Return `xml` if it is UTF-8 and parsed in linear time; else FoundError."""
    try:
        text = xml.decode("utf-8")
    except UnicodeDecodeError as err:
        raise FoundError("XML that is not UTF-8") from err
    # In UTF-16 the searches below would find nothing.
    if "\0" in text:
        raise FoundError("XML that is not UTF-8")
    if "<!ENTITY" in text:  # entities may expand
        raise FoundError("XML that declares entities")
    if "<!ATTLIST" in text:  # default attributes are repeated at every element
        raise FoundError("XML that declares attributes")
    return xml


def axes_of(xml: bytes, max_points: int) -> tuple[Axis, Axis]:
    """Return the axes of both dimensions of CIFTI; FoundError, or an error of the parser."""
    from nibabel.cifti2.parse_cifti2 import Cifti2Parser

    if (n_maps := plain_xml(xml).count(b"<MatrixIndicesMap")) > 2:  # parsing is quadratic
        raise FoundError(f"{n_maps} maps of indices, not two")
    # Fix the encoding, or the file could declare another one.
    parser: Any = Cifti2Parser(encoding="utf-8")
    # Parse in one piece: expat restarts a long token at every piece.
    expat = parser._create_parser()
    for name in parser.HANDLER_NAMES:
        setattr(expat, name, getattr(parser, name))
    expat.Parse(xml, True)
    for index_map in parser.header.matrix:
        # The parser would allocate the stated number of values before it reads them.
        said = [model.index_count for model in index_map.brain_models]
        if min(said, default=0) < 0 or sum(said) > max_points:
            raise FoundError(f"{sum(said)} points, at most {max_points}")
    return parser.header.get_axis(0), parser.header.get_axis(1)
