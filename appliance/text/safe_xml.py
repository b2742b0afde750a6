"""XML that strangers wrote, as a tree: no document types, so no entities, and of a limited size and depth. Pure."""

from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from appliance.errors import Refused, TooLarge, Unavailable

MAX_ELEMENTS, MAX_DEPTH = 200_000, 200


class _Builder(ElementTree.TreeBuilder):
    """Refuses what has no place in an answer, as soon as it begins, in whatever encoding it is written."""

    def __init__(self, who: str) -> None:
        super().__init__()
        self._who = who
        self._count = self._depth = 0

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        raise Refused(f"{self._who} sends XML with definitions of its own")

    def start(self, tag: str, attributes: dict[str, str], /) -> Element:
        self._count += 1
        self._depth += 1
        if self._count > MAX_ELEMENTS or self._depth > MAX_DEPTH:
            raise TooLarge(f"{self._who} sends XML with more than {MAX_ELEMENTS} elements, or deeper than {MAX_DEPTH}")
        return super().start(tag, attributes)

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)


def parse(data: bytes, who: str) -> Element:
    """The root element; `who` sent it, as errors say: Refused for definitions, TooLarge, or Unavailable for what is no XML."""
    try:
        return ElementTree.fromstring(data, ElementTree.XMLParser(target=_Builder(who)))
    except ElementTree.ParseError as error:  # whose text may quote what was sent
        raise Unavailable(f"{who} sends no readable XML: line {error.position[0]}, column {error.position[1]}") from None
    except (RecursionError, ValueError, LookupError):
        raise Unavailable(f"{who} sends no readable XML") from None
