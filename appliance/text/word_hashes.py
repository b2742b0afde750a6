"""Hashes by which the words of a text are known again in another one, whatever stands around them and however they are set.

One rule: a text is a row of letters, small and without accents, blanks, punctuation, numbers and what nobody sees; those that
look alike are one. At each of its words a piece of PIECE letters begins, and `pieces` has the hash of each. Another text holds
its words when the pieces that both have cover ENOUGH of its letters, none further than NEAR from the first: nine or ten words in
a row, or twice five with others between them (`is_enough`). Shorter texts are known as a whole alone (`whole`). A letter of
Chinese counts three times, one of Japanese twice, and both begin a word, as in other scripts without blanks. Pure.
Not promised: a short line within another text, phrases that many people use, words in another order or spelling, and codes.
"""

import html
import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate

from appliance.text.invisible import IGNORED, normalized

PIECE = 24  # letters: five words of English
ENOUGH = 38  # letters: more than most phrases have that everybody uses
NEAR = 200  # letters in which they stand, with what is between them
LEAST_WHOLE = 24  # letters of a text that is known as a whole: titles and short lines are nobody's
LEAST_KINDS = 6  # different letters of a piece: bars and laughter say nothing
MAX_WORDS = 40_000  # of one text
WORD = re.compile(r"[^\W\d_\u02b0-\u02ff]+")  # modifiers such as a letter apostrophe are signs
NUMBERED = re.compile(r"[^\W_]+")
ESCAPE = re.compile(r"\\(?:[nrtbf]|u([0-9a-fA-F]{4}))")
TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9-]*(?:\s[^<>]{0,200})?/?>")
VALUE = re.compile(r"""=\s*(?:"([^"]{24,})"|'([^']{24,})')""")  # in a tag: a text that is shown by it, such as that of an outline
COMMAND = re.compile(r"\\[A-Za-z]{2,}\*?(?=\{)")  # of LaTeX, around a word
# Scripts that are written without blanks, and how often one of their letters counts.
UNSPACED = (
    (re.compile("[\u3005\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"), r" \g<0>\g<0>\g<0>"),
    (re.compile("[\u3040-\u30ff]"), r" \g<0>\g<0>"),
    (re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"), r" \g<0>"),
)

TAGS = {0xE0000 + code: code for code in range(0x20, 0x7F)}  # which nobody sees, and models read as the letters
# Letters that look like others: Latin ones that are bent, struck through or small capitals; those of Cyrillic, Greek and Armenian.
LOOKALIKES = str.maketrans(
    "øđħıłŧƀƃƈƌƒƙƚƞƥƫƭƴƶǥȡȥȴȵȶȷȼȿɀɇɉɋɍɏɓɕɖɗɟɠɡɢɦɨɪɫɬɭɱɲɳɴɼɽɾʀʂʄʈʋʏʐʑʙʛʜʝʟʠᴀᴄᴅᴇᴊᴋᴌᴍᴏᴘᴛ"
    "ᴜᴠᴡᴢᵬᵭᵮᵯᵰᵱᵲᵳᵴᵵᵶᵽⱡⱥⱦⱨⱪⱬⱱⱳⱴⱸⱺꜰꜱꝁꝃꝅꝉꝋꝍꝑꝓꝕꝗꝙꝟꞎꞑꞓꞔꞕꞗꞙꞡꞣꞥꞧꞩꞯꞹꟈꟊꬴꬶꬷꬸꬹꬺꬻꭆꭉꭋꭌꭎꭒꭖꭗꭘꭙꭚɑ"
    "аеорсухіјѕһԁԛԝӏүѵвкмнтгαεικνορτυχγωηβμςօսհոցզ",
    "odhiltbbcdfklnpttyzgdzlntjcszejqrybcddjggghiilllmnnnrrrrsjtvyzzbghjlqacdejklmopt"
    "uvwzbdfmnprrstzplathkzvwveofskkkloopppqqvlncchbfgknrsqudseglllmnrrrruuxxxxya"
    "aeopcyxijshdqwlyvbkmhtraeikvoptuxywnbmcouhngq",
)


def kept(text: str, own: str = "") -> set[int]:
    """The hashes to know a text by, as a whole and in parts; without those of what stands in `own`."""
    mine = {one for _, one in pieces(own)} if own else set()
    made = {one for _, one in pieces(text, MAX_WORDS)} - mine
    return made | whole(text) if made or not mine else made


def whole(text: str) -> set[int]:
    """The hash of all of a text, its numbers included; none of a few letters."""
    letters = letters_of(_without_tags(text))
    return {_hash(letters.encode("utf-16-le", "surrogatepass"))} if len(letters) >= LEAST_WHOLE else set()


def letters_of(text: str) -> str:
    """The letters and digits of a text in a row, as `pieces` has them."""
    return "".join(NUMBERED.findall(_plain(text)))


def number_of(text: str) -> int:
    """A number that stands for a text, letter by letter."""
    return _hash(text.encode("utf-16-le", "surrogatepass"))


def pieces(text: str, limit: int | None = None) -> Iterator[tuple[int, int]]:
    """Where pieces begin, counted in letters, and their hashes."""
    words = WORD.findall(_plain(_without_tags(text)))[:limit]
    data, size = "".join(words).encode("utf-16-le", "surrogatepass"), 2 * PIECE  # two bytes a letter, or four
    for at in accumulate((len(word.encode("utf-16-le", "surrogatepass")) for word in words), initial=0):
        piece = data[at : at + size]
        if len(piece) < size:
            return
        if len(set(piece)) > LEAST_KINDS:
            yield at // 2, _hash(piece)


def is_enough(places: Sequence[int]) -> bool:
    """Whether pieces that begin at these places, in their order, are so many and so near that a text holds another's words."""
    covered = list(accumulate((min(PIECE, there - here) for here, there in zip(places, places[1:], strict=False)), initial=PIECE))
    first = 0
    for last, place in enumerate(places):
        while place - places[first] > NEAR - PIECE:
            first += 1
        if covered[last] - covered[first] + PIECE >= ENOUGH:
            return True
    return False


def _without_tags(text: str) -> str:
    """The text without what marks it up word by word: tags of HTML, also of HTML that is shown as text, whose long values come
    last; and commands of LaTeX.
    """
    text = COMMAND.sub("", text) if "{" in text and "\\" in text else text
    if "<" not in text and "&" not in text:
        return text
    values: list[str] = []

    def taken_out(tag: re.Match[str]) -> str:
        values.extend(one or other for one, other in VALUE.findall(tag[0]))
        return ""

    return "\n".join([TAG.sub(taken_out, html.unescape(text)), *values])


def _plain(text: str) -> str:
    text = ESCAPE.sub(_unescape, text) if "\\" in text else text
    text = html.unescape(text)
    if not text.isascii():
        text = IGNORED.sub("", normalized("NFKD", text.translate(TAGS)))
        for script, counted in UNSPACED:
            text = script.sub(counted, text)
        return text.casefold().translate(LOOKALIKES)
    return text.casefold()


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else "\n"


def _hash(data: bytes) -> int:
    """47 bits: two cheap sums, for which nobody gains anything by making two texts that have the same."""
    return zlib.crc32(data) << 15 | zlib.adler32(data) & 0x7FFF
