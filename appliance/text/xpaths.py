"""XPath 1.0 over XML texts: what a path selects, within a `Watch`.

Imports the whole library, so import this module where it is needed. Version 1.0 opens no files, has no
variables and no regular expressions. Every node that the library goes to, and every pair of values that
it compares, looks at the watch. Names are read without their namespaces, so that `//entry` finds what
people see. A document that declares entities is not read: a few lines of them can mean gigabytes.
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

from elementpath import ElementPathError, XPathContext
from elementpath.xpath1 import XPath1Parser

from appliance.errors import BadInput, TooLarge
from appliance.text.pattern_limits import DEPTH_LIMIT, PatternWatch, bounded, short

TEXT_LIMIT = 256 * 1024  # characters; a node costs ten times what it costs in JSON
CONCAT_LIMIT = 16  # arguments of all concat() together: each may be as long as the document

# What the library lets through for odd operands, beside its own errors.
_ERRORS = (
    ElementPathError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
)


class XPathSelector:
    """An XPath compiled once; BadInput when it is not valid."""

    name = "XPath"

    def __init__(self, text: str) -> None:
        self._text = text
        try:
            self._path = _XPathParser().parse(text)
        except _ERRORS as error:
            message = f"the pattern {short(text)} is not valid XPath 1.0: {_first_line(error)}"
            raise BadInput(message, hint="names have no prefixes here: namespaces are ignored") from None
        if sum(len(token) for token in self._path.iter("concat")) > CONCAT_LIMIT:
            raise BadInput(f"the pattern {short(text)} joins too much", hint=f"give concat() up to {CONCAT_LIMIT} arguments")

    def values(self, subject: str, watch: PatternWatch) -> Iterator[str]:
        """The text of what is selected, nothing for a condition that is false; none when the subject is not XML."""
        root = _read_xml(subject, watch)
        if root is None:
            return
        try:
            for item in self._path.select(_Context(root, watch)):
                if item is not False:
                    yield self._path.string_value(item)
        except _ERRORS as error:
            raise BadInput(f"the pattern {short(self._text)} cannot be used: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _read_xml(subject: str, watch: PatternWatch) -> ElementTree.Element | None:
    """The root of an XML text; None when it is none."""
    text = subject.lstrip("\ufeff \t\r\n")
    if not text.startswith("<"):
        return None
    document = _Document(watch)
    try:
        return document.read(bounded(text, TEXT_LIMIT, "the XML"))
    except (expat.ExpatError, ValueError):
        return None


class _Document:
    """One XML text on its way to a tree."""

    def __init__(self, watch: PatternWatch) -> None:
        self._watch = watch
        self._depth = 0
        self._builder = ElementTree.TreeBuilder(insert_comments=True, insert_pis=True)

    def read(self, text: str) -> ElementTree.Element:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start_element, self._end_element
        parser.CharacterDataHandler, parser.CommentHandler = self._builder.data, self._builder.comment
        parser.ProcessingInstructionHandler = self._builder.pi
        parser.EntityDeclHandler = self._refuse_declaration
        parser.Parse(text, True)
        return self._builder.close()

    def _start_element(self, tag: str, attributes: dict[str, str]) -> None:
        self._watch.check()
        self._depth += 1
        if self._depth > DEPTH_LIMIT:
            raise TooLarge(f"the XML has more than {DEPTH_LIMIT} elements inside each other", hint="match a part of it")
        plain = {name.rpartition(":")[2]: value for name, value in attributes.items() if name.partition(":")[0] != "xmlns"}
        self._builder.start(tag.rpartition(":")[2], plain)

    def _end_element(self, tag: str) -> None:
        self._depth -= 1
        self._builder.end(tag.rpartition(":")[2])

    def _refuse_declaration(self, *declaration: object) -> None:
        raise ValueError("an entity is declared")


class _Context(XPathContext):
    def __init__(self, root: ElementTree.Element, watch: PatternWatch) -> None:
        super().__init__(root)
        self.watch = watch

    def __copy__(self) -> "_Context":
        self.watch.check()
        copied = super().__copy__()
        assert isinstance(copied, _Context)
        return copied


def _watch_iterator(original: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def iterate(self: _Context, *arguments: Any, **named: Any) -> Iterator[Any]:
        self.watch.check()
        for item in original(self, *arguments, **named):
            self.watch.check()
            yield item

    return iterate


for _name in [name for name in dir(XPathContext) if name.startswith("iter_")]:
    setattr(_Context, _name, _watch_iterator(getattr(XPathContext, _name)))


ORDERS, EQUALITIES = ("<", "<=", ">", ">="), ("=", "!=")


def _pair_values(self: Any, context: Any) -> Iterator[Any]:
    """Every value of one side with every value of the other, as XPath 1.0 compares them.

    The library ends with an error at a text that is no number, and lets the text 1 differ from the number 1.
    """
    left, right = (list(side.atomization(context)) for side in self)
    if any(len(side) == 1 and isinstance(side[0], bool) for side in (left, right)):
        pairs = super(type(self), self).iter_comparison_data(context)
    elif self.symbol in ORDERS:
        pairs = product([*map(self.number_value, left)], [*map(self.number_value, right)])
    else:
        pairs = (_convert_alike(self, *pair) for pair in product(left, right))
    for pair in pairs:
        if context is not None:
            context.watch.check()
        yield pair


def _convert_alike(token: Any, left: Any, right: Any) -> tuple[Any, Any]:
    """Two texts, or two numbers when one is a number."""
    if isinstance(left, str) and isinstance(right, str):
        return left, right
    return token.number_value(left), token.number_value(right)


class _XPathParser(XPath1Parser):
    symbol_table = {
        symbol: type(token.__name__, (token,), {"__slots__": (), "iter_comparison_data": _pair_values})
        if symbol in ORDERS + EQUALITIES
        else token
        for symbol, token in XPath1Parser.symbol_table.items()
    }
