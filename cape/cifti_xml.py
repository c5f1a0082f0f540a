"""XML of somebody else's CIFTI and GIFTI files: which is read at all, in time of its length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cape.errors import FoundError

if TYPE_CHECKING:
    from nibabel.cifti2.cifti2_axes import Axis

# Bytes of the XML; that of 91,282 grayordinates has 0.6 million.
MAX_XML_BYTES: Final = 2**25


def plain_xml(xml: bytes) -> bytes:
    """Return XML in UTF-8 that is read in time of its length; ValueError for other."""
    try:
        text = xml.decode("utf-8")
    except UnicodeDecodeError as err:
        raise FoundError("XML that is not UTF-8") from err
    # Of two bytes a letter, in which nothing below would be found.
    if "\0" in text:
        raise FoundError("XML that is not UTF-8")
    if "<!ENTITY" in text:  # nothing that could unfold
        raise FoundError("XML that declares entities")
    if "<!ATTLIST" in text:  # every element would get all that it says, however short the file
        raise FoundError("XML that declares attributes")
    return xml


def axes_of(xml: bytes, max_points: int) -> tuple[Axis, Axis]:
    """Return the axes of both dimensions of CIFTI; FoundError, or whatever its parser raises."""
    from nibabel.cifti2.parse_cifti2 import Cifti2Parser

    if (n_maps := plain_xml(xml).count(b"<MatrixIndicesMap")) > 2:  # each looks at all before it
        raise FoundError(f"{n_maps} maps of indices, not two")
    # Named, so that the file cannot declare another one.
    parser: Any = Cifti2Parser(encoding="utf-8")
    # As one piece: in small ones expat begins a long token anew at each.
    expat = parser._create_parser()
    for name in parser.HANDLER_NAMES:
        setattr(expat, name, getattr(parser, name))
    expat.Parse(xml, True)
    for index_map in parser.header.matrix:
        # As many numbers as it says would be made before they are read.
        said = [model.index_count for model in index_map.brain_models]
        if min(said, default=0) < 0 or sum(said) > max_points:
            raise FoundError(f"{sum(said)} points, at most {max_points}")
    return parser.header.get_axis(0), parser.header.get_axis(1)
