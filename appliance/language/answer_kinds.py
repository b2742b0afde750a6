"""What kind of thing a question asks for, and whether a sentence holds one: a person, a place, a time, an age, a number.

A sentence that does not hold what is asked for is no answer, however many of the question's words it has: "the dog was
vaccinated on 12 May" says nothing about how old the dog is. Patterns for English, German, French and Spanish. Pure; no grammar
is parsed, so a kind says what must be there and never that what is there is right. A question of no known kind takes anything.
"""

import re
from collections.abc import Callable
from functools import lru_cache

from msgspec import Struct

MONTH = (
    r"(?:jan(?:uary|uar)?|feb(?:ruary|ruar)?|march|märz|apr(?:il)?|mai|june?|juni|july?|juli|aug(?:ust)?|sept?(?:ember)?"
    r"|o[ck]t(?:ober)?"
    r"|nov(?:ember)?|de[cz](?:ember)?|janvier|février|mars|avril|juin|juillet|août|septembre|octobre|novembre|décembre"
    r"|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre)"
)
NUMBER_WORD = (
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|fifty|hundred"
    r"|thousand|dozen|half|none"
    r"|once|twice|einmal|zweimal|dreimal|täglich|wöchentlich|monatlich|jährlich|une fois|deux fois|una vez|dos veces"
    r"|eine?[nr]?|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf|un|une|deux|trois|quatre|cinq|sept|huit|neuf"
    r"|dix|onze|douze"
    r"|una?|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|once|doce)"
)
UNIT_OF_TIME = (
    r"(?:seconds?|minutes?|mins?|hours?|h|days?|weeks?|months?|years?|sekunden?|minuten?|stunden?|tage?n?|wochen?"
    r"|monate?n?|jahre?n?"
    r"|secondes?|heures?|jours?|semaines?|mois|ans?|années?|segundos?|minutos?|horas?|días?|semanas?|mes(?:es)?|años?)"
)
UNIT_OF_LENGTH = (
    r"(?:mm|cm|m|km|miles?|metres?|meters?|feet|foot|ft|inch(?:es)?|yards?|meter|kilometern?|mètres?"
    r"|kilomètres?|metros?|kilómetros?)"
)
WEEKDAY = (
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|montags?|dienstags?|mittwochs?|donnerstags?|freitags?|samstags?|sonntags?"
    r"|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|lunes|martes|miércoles|jueves|viernes|sábados?|domingos?)"
)
A_NUMBER = rf"(?:\d[\d.,]*|\b{NUMBER_WORD}\b)"
DATE = (
    rf"\b\d{{1,2}}(?:st|nd|rd|th|\.)?(?: of| de)? {MONTH}\b(?:,? (?:de )?\d{{4}})?|\b{MONTH} \d{{1,2}}(?:st|nd|rd"
    rf"|th)?\b(?:,? \d{{4}})?"
    rf"|\b{MONTH}(?: de)? \d{{4}}|\b(?:19|20)\d\d-[01]\d(?:-[0-3]\d)?\b|\b\d{{1,2}}[./]\d{{1,2}}[./]\d{{2,4}}\b"
    rf"|\b\d{{1,2}}/\d{{4}}\b|\b\d{{1,2}}\.\d{{1,2}}\.(?!\d)"
    r"|\b(?:19|20)\d\d\b"
)
CLOCK = (
    r"\b\d{1,2}[:.]\d\d\b(?! (?:bar|euros?|%))|\b\d{1,2} ?(?:am|pm|a\.m|p\.m|uhr|o'clock|h(?: ?\d\d)?)\b|\b(?:at|um|à"
    rf"|a las|until|till|bis|from) \d{{1,2}}\b|\b(?:until|till|bis) {NUMBER_WORD}\b"
)
SOME_DAY = (
    rf"\b(?:{WEEKDAY}|{MONTH}|may|spring|summer|autumn|winter|morning|noon|midnight|evening|night|daily|weekly|monthly"
    rf"|yearly|every|each"
    r"|tomorrow|today|tonight|yesterday|weekends?|now|soon|always|never|christmas|easter|frühling|sommer|herbst|morgens?"
    r"|mittags?|abends?|nachts?"
    r"|täglich|wöchentlich|monatlich|jährlich|jede[nrs]?|heute|gestern|weihnachten|ostern|printemps|été|automne|hiver"
    r"|matin|midi|soir|nuit|chaque"
    r"|demain|noël|pâques|primavera|verano|otoño|invierno|mañana|mediodía|tarde|noche|cada|hoy|ayer|navidad)\b"
)
DAY_OF_MONTH = (
    r"\b\d{1,2}(?:st|nd|rd|th)\b|\b(?:first|second|third|fourth|last|ersten?|zweiten?|dritten?|letzten?"
    r"|premier|dernier|primer|último)\b"
)
SPAN = rf"{A_NUMBER}[ -](?:more )?{UNIT_OF_TIME}\b"
WHEN = "|".join((DATE, CLOCK, SOME_DAY, DAY_OF_MONTH, SPAN))
DURATION = (
    rf"{A_NUMBER}[ -]?(?:more )?(?:and a half |einhalb )?(?:{UNIT_OF_TIME}|{UNIT_OF_LENGTH})\b|\b(?:hours?"
    rf"|stunden|heures"
    rf"|horas)\b"
    r"|\b(?:from|von|de|du|between|until|till|bis|jusqu|hasta)\b.*\d|\bhalf an hour\b"
)
AGE = (
    rf"{A_NUMBER}[ -](?:and a half )?(?:{UNIT_OF_TIME}[ -](?:old|alt)|years?|jahre?|ans|años?)\b|\b(?:born|hatched|birth|birthday"
    rf"|aged?|geboren|geburtstag|naissance|née?|nació|nacid[oa]|edad|turned|turns)\b"
    r"|\b(?:is|was|are|ist|wird|a|tiene) \d{1,3}\b(?=[.,;!]|$| and\b| und\b| et\b| y\b| now\b)|: \d{1,3}\.?$"
    r"|\b(?:from|since|built|made|planted|bought|founded|seit|von|gebaut|gepflanzt|gekauft|depuis|construite?|plantée?"
    r"|desde|construid[oa]|plantad[oa])"
    r"(?: in| im| en)? (?:19|20)\d\d\b"
)
MONEY = (
    r"[€$£¥]|\b(?:euros?|eur|dollars?|cents?|pounds?|pence|francs?|franken|chf|usd|gbp|free|kostenlos|gratis|gratuite?"
    r"|umsonst|nothing|yen)\b"
)
BARE_AMOUNT = (  # 1,060 or 214, and no count, length or part of a longer number
    r"(?<![\w.,/:-])\d{1,3}(?:[.,' ]\d{3})+(?![\w/:-])"
    rf"|(?<![\w.,/:-])\d{{2,5}}(?:[.,]\d\d)?(?! ?(?:{UNIT_OF_TIME}|{UNIT_OF_LENGTH}|%|kg|g|l)\b)(?![\w/:-])"
)
WEIGHT = r"\d ?(?:kg|g|lbs?|kilos?|grams?|gramm|pounds?|stone|tonn?e?s?)\b"
HEIGHT = rf"\d ?{UNIT_OF_LENGTH}\b"
PHONE = r"\d{2,}[-/ .]\d{2,}|\d{5,}"
MAIL = r"\S@\S"
PASSWORD = (
    r"\b(?:pass(?:word|code|phrase)|pin|code|log-?in|passwor[dt]|kennwort|mot de passe|contraseña|clave)\b"
    r"|(?=\S*[^\W\d_])(?=\S*\d)[^\s:/]{4,}|^\W*\S+\W*$"
)
FULL_NAME = r"(?<!Mr )(?<!Mrs )(?<!Ms )(?<!Dr )(?<!Herr )(?<!Frau )\b[A-ZÄÖÜÉ][a-zäöüéß'’-]+ [A-ZÄÖÜÉ][\w'’-]+"
ANY_NUMBER = rf"\d|\b{NUMBER_WORD}\b|\b(?:every|daily|weekly|monthly|yearly|all|jede[nrs]?|chaque|cada|no|kein\w*)\b"
A_DATE = f"{DATE}|{CLOCK}"
COLOUR = (
    r"\b(?:dark|light|hell|dunkel)?(?:red|blue|green|yellow|black|white|grey|gray|brown|orange|pink|purple|violet|silver"
    r"|gold(?:en)?|beige|turquoise"
    r"|rot|blau|grün|gelb|schwarz|weiß|grau|braun|rosa|lila|silbern?|türkis|rouge|bleue?|verte?|jaune|noire?|blanc(?:he)?"
    r"|grise?|marron|brune?"
    r"|roj[oa]|azul|verde|amarill[oa]|negr[oa]|blanc[oa]|gris|naranja|morad[oa])(?:e[rnsm]?|s)?\b"
)
PLACE = (
    r"\b(?:in|at|on|under|behind|beside|near|next to|by|above|below|inside|outside|between|into|from|opposite|with"
    r"|over|around|through|left|right"
    r"|lives?|hall|cellar|kitchen|shed|attic|upstairs|downstairs|home|street|road|lane|avenue|square|here|there|abroad"
    r"|im|am|auf|unter|hinter|neben|bei|beim|über|zwischen|nach|aus|von|vom|zu|zum|zur|links|rechts|oben|unten|keller"
    r"|küche|flur|zuhause|straße|wohnt"
    r"|dans|à|au|aux|sur|sous|derrière|devant|près|chez|entre|rue|cave|cuisine|gauche|droite"
    r"|en|bajo|debajo|detrás|junto|cerca|sobre|casa|calle|sótano|cocina|izquierda|derecha|al)\b|\w(?:straße|strasse|str\."
    r"|gasse|weg|platz)\b"
)
NAME = r"(?<![.!?:] )(?<!^)\b[A-ZÄÖÜÉ][\w'’-]+"
LABEL = r"^[\w' -]{2,30}: "  # "Fuse box: hall"
NAMED = r"(?:[A-ZÄÖÜÉ][\w'’-]+ ?){1,3}: "  # and one that may be somebody: "Lea: 7 September"
BELONGS = r"\b(?:belongs? to|owned by|gehör(?:t|en)|appartien(?:t|nent) à|pertenecen? a|propiedad de)\b"
STREET = r"\b(?:street|road|lane|avenue|square|rue|calle|platz)\b|\w(?:straße|strasse|str\.|gasse|weg|platz)\b"
JOB = (
    r"\b(?:works?|worked|working|job|profession|retired|employed|studies|teaches|student|arbeitet|beruf|rentner\w*|travaille|métier"
    r"|trabaja|profesión|doctor|nurse|teacher|engineer|lawyer|baker|plumber|manager|\w+ist)\b"
)
ROLE = (
    r"\b(?:i|me|my|we|us|you|he|she|they|mother|mum|mom|father|dad|sister|brother|son|daughter|wife|husband|partner|uncle"
    r"|aunt|cousin|grand\w+|neighbou?rs?|friends?"
    r"|man|woman|men|women|guy|lady|gentleman|girl|boy|people|person|cleaner|plumber|gardener|builder|roofer|painter|carpenter|nurse"
    r"|mechanic|hairdresser|baker|butcher|landlord|landlady|tenant|owner|caretaker|janitor|carer|driver|coach|trainer|priest|vicar"
    r"|(?:baby|house|pet)sitter|sitter|(?:post|milk|repair|fire|police|handy)man|chimney sweep|customer|client|agent"
    r"|plombier|médecin|docteur|facteur|ramoneur|infirmière|propriétaire|gardienne?|fontanero|médico|casero|jardinero"
    r"|children|child|club|verein|association|council|boss|colleague|teacher|doctor|family|nobody|everybody|company|\w+(?:ist|ian)|ich|mich|mir|wir|uns"
    r"|mutter|mama|vater|papa|schwester|bruder|sohn|tochter"
    r"|frau|mann|onkel|tante|oma|opa|nachbar\w*|freund\w*|kinder|kind|chef\w*|familie|niemand|je|moi|nous|mère|père|sœur"
    r"|soeur|frère|fils|fille|femme|mari|oncle|voisine?s?"
    r"|amie?s?|enfants?|famille|personne|yo|nosotros|madre|padre|hermana|hermano|hijo|hija|mujer|marido|esposa|tío|tía"
    r"|vecin[oa]s?|amig[oa]s?|niños?|familia|nadie)\b"
)


# Words that begin a sentence and are nobody.
BEGINNINGS = frozenset(
    """
    the a an it its this that these those there here in on at to from by for with of and or but if when while where what
    which who how as so no not next last first is are was be do does please my our your his her their all every each some
    any one two three since until after before der die das ein eine einen es im am auf aus bei mit von vom zum zur für und
    oder aber wenn als wo wer wie kein keine mein meine unser unsere jede jeder jedes alle nach vor seit bis bitte man le la
    les un une des il elle ils elles ce cette ces dans sur avec pour par et ou mais si quand mon ma mes notre nos chaque el
    los las una uno en con por para y o pero cuando mi mis nuestro nuestra cada
    """.split()
)


TITLES = frozenset("mr mrs ms miss dr prof professor madame monsieur mme señor señora herr frau aunt uncle tante onkel".split())


class Kind(Struct, frozen=True):
    """What is asked for. `words` of the question are said by the thing itself: "old" by an age, "cost" by an amount."""

    name: str
    question: str
    holds: Callable[[str], bool]
    words: frozenset[str] = frozenset()
    perhaps: str = ""  # what may be meant where people leave out what it is: an amount without its currency, beside these words
    beside: frozenset[str] = frozenset()

    def may_hold(self, text: str) -> bool:
        """Whether a text without such a thing may say it all the same."""
        if not self.perhaps or compiled(self.perhaps).search(compiled(A_DATE).sub(" ", text)) is None:
            return False
        return not self.beside.isdisjoint(word.lower() for word in re.findall(r"[^\W_]+", text))


def kind_of(question: str) -> Kind | None:
    """What an answer must hold: the first kind that fits, for the narrow ones come first."""
    return next((kind for kind in KINDS if compiled(kind.question).search(question)), None)


def says_what_is_asked(question: str, answer: str) -> bool:
    """Whether an answer holds what is asked for in words of its own: "the vet looks after them" names nobody."""
    kind = kind_of(question)
    asked = {word.lower() for word in re.findall(r"[^\W_]+", question)}
    return kind is None or kind.holds(re.sub(r"[^\W_]+", lambda word: "" if word[0].lower() in asked else word[0], answer))


@lru_cache(maxsize=128)
def compiled(words: str) -> "re.Pattern[str]":
    """A pattern, made at the first need: all of them take 13 ms, which no start should pay."""
    return re.compile(words, re.IGNORECASE)


def _holds_number(text: str) -> bool:
    """Whether a text has a number that is no date and no time of day."""
    return bool(compiled(ANY_NUMBER).search(compiled(A_DATE).sub(" ", text)))


def _holds_place(text: str) -> bool:
    """Whether a text says where: a word such as "under", a name that is no day, or a label with something behind it."""
    rest = compiled(LABEL).sub("", compiled(WHEN).sub(" ", compiled(A_DATE).sub(" ", text)))
    rest = re.sub(
        r"\b(?:in|on|at|im|am|um|en|le|el|from|to|by|until)\b(?= *(?:$|[.,;)]|and\b| {2}))", " ", rest, flags=re.IGNORECASE
    )
    has_label = bool(compiled(LABEL).match(text)) and bool(re.search(r"[^\W\d]{2}", rest))
    return bool(compiled(PLACE).search(rest) or re.search(NAME, rest) or has_label)


def _holds_person(text: str) -> bool:
    """Whether a text has a word with a capital letter, or one such as "neighbour"."""
    rest = compiled(WHEN).sub(" ", compiled(A_DATE).sub(" ", compiled(LABEL).sub("", text)))
    if re.match(NAMED, text):
        return True
    capitals = re.findall(r"\b[A-ZÄÖÜÉ][\w'’-]*[a-zäöüéß]", rest)
    return any(word.lower() not in BEGINNINGS for word in capitals) or compiled(ROLE).search(rest) is not None


def _holds_owner(text: str) -> bool:
    """Whether a text names somebody, or says to what something belongs."""
    return compiled(BELONGS).search(text) is not None or _holds_person(text)


def _holds_full_name(text: str) -> bool:
    """Whether a text has two words with capital letters in a row, the first of which is no title and begins no sentence."""
    titled = re.sub(r"\b(Mr|Mrs|Ms|Dr|Prof|Mme|Sr|Sra)\.", r"\1", text)
    return any(found[0].split()[0].lower() not in BEGINNINGS | TITLES for found in re.finditer(FULL_NAME, titled))


def _fits(words: str) -> Callable[[str], bool]:
    return lambda text: compiled(words).search(text) is not None


KINDS: tuple[Kind, ...] = (
    Kind(
        "first name",
        r"\b(?:(?:first|given|full|last|family) name|surname|vorname|nachname|prénom|nom de famille|apellido|nombre de pila)\b",
        _holds_full_name,
        frozenset("first given full last family name surname vorname nachname prenom nom apellido nombre".split()),
    ),
    Kind("password", r"\b(?:pass(?:word|code|phrase)|passwort|kennwort|mot de passe|contraseña)\b", _fits(PASSWORD)),
    Kind(
        "place",
        (
            r"^\W*(?:(?:and|so|und|et|y|from|to) )?(?:where|wo|woher|wohin|où|d'où|(?:de |a )?d[oó]nde|adónde)\b"
            r"|\bwh(?:at|ich) (?:town|city|country|place|room)\b"
        ),
        _holds_place,
        frozenset("place town city country".split()),
    ),
    Kind("owner", r"^\W*(?:(?:and|so|und|et|y) )?(?:whose|wem gehör\w+|à qui|de quién)\b", _holds_owner),
    Kind(
        "person",
        (
            r"^\W*(?:(?:and|so|und|et|y|to|with|from|for|by|mit|von|à|avec|con) )?(?:who|whom|whose|wer|wem|wen|wessen"
            r"|qui|quién|quiénes|which (?:person|people)|what person)\b"
        ),
        _holds_person,
        frozenset("person people call ask contact".split()),
    ),
    Kind(
        "street",
        (r"\b(?:which|what) (?:street|road)\b|\bwelche[rn]? (?:straße|strasse)\b|\bquelle rue\b|\b(?:qué|cuál) calle\b"),
        _fits(STREET),
        frozenset("street road strasse rue calle live lives wohnt".split()),
    ),
    Kind(
        "job",
        (r"\bfor (?:a living|work)\b|\bwhat (?:.{1,30} )?\b(?:job|profession|occupation)\b|\b(?:welchen beruf|von beruf)\b"),
        _fits(JOB),
        frozenset("living job profession occupation beruf".split()),
    ),
    Kind(
        "age",
        (r"\b(?:how old|what age|what is .{1,30}\bage|which year .* born|wie alt|quel âge|cuántos años|qué edad)\b"),
        _fits(AGE),
        frozenset("old age alt age years anos edad".split()),
    ),
    Kind(
        "telephone number",
        (
            r"\b(?:(?:tele)?phone|mobile|cell|telefon|handy)[ -]?(?:number|nummer)|\b(?:his|her|their) number\b"
            r"|numéro de (?:téléphone|portable)"
            r"|número de (?:teléfono|móvil)|^\W*cuál es (?:el|su) (?:teléfono|móvil)\b"
            r"|^\W*quel est (?:le|son) (?:téléphone|numéro)\b"
            r"|what(?:'s| is) .{1,40}\b(?:phone|mobile)\W*$|^\W*how (?:can|do) (?:i|we) (?:reach|call|phone)\b"
        ),
        _fits(PHONE),
        frozenset("phone telephone mobile number telefon handy telefonnummer telefono movil numero portable".split()),
    ),
    Kind("account number", (r"\biban\b"), _fits(r"\b[A-Z]{2}\d{2}(?:\b|[A-Z\d]{4})")),
    Kind(
        "e-mail address",
        (
            r"\be-?mail[ -]?(?:add?ress|adresse)|\bmailadresse|adresse (?:e-?mail|mail)|\bcorreo\b"
            r"|what(?:'s| is) .{1,40}\be-?mail\W*$"
        ),
        _fits(MAIL),
    ),
    Kind(
        "colour",
        (r"\b(?:what|which) colou?r\b|\bwelche farbe\b|\bquelle couleur\b|\b(?:de )?qué color\b"),
        _fits(COLOUR),
        frozenset("colour color farbe couleur".split()),
    ),
    Kind(
        "amount of money",
        (
            r"\bhow much (?:is|are|was|were) (?!in\b|left\b|\d)|\bhow (?:much|expensive)\b.*\b(?:costs?|pay|paid"
            r"|charge[sd]?|spen[dt]|owe|earn|euros?|dollars?|pounds?|rent|deposit|fee|expensive|price)\b|\bhow expensive\b"
            r"|\b(?:was|wie ?viel) .*(?:kostet|kosten|bezahl\w*|zahl\w*)\b|\bcombien coûte\w*|\bcuánto (?:cuesta|cuestan"
            r"|costó|vale|pag\w+)\b|\bwhat (?:does|do|did|will) .* (?:cost|charge)\b|\bwhat (?:did|do) (?:i|we|you|they) pay\b"
            r"|\bwhat(?:['’]s| is| was) (?:the|our|my|your) (?:\w+ )?(?:rent|fee|premium|deposit|excess|deductible|salary)\b"
        ),
        _fits(MONEY),
        frozenset("cost costs much expensive price pay paid kostet kosten coute coutent cuesta cuestan".split()),
        BARE_AMOUNT,
        frozenset(
            "pay pays paid cost costs fee fees rent price charge charges left owe owes salary gross net deposit total bill".split()
        )
        | frozenset("zahlt bezahlt kostet kosten miete preis gebühr rest loyer prix charges paga cuesta precio alquiler".split()),
    ),
    Kind(
        "weight",
        (r"\bhow (?:heavy|much .* weigh)|\bwie ?(?:schwer|viel wiegt)|\bcombien pèse|\bcuánto pesa"),
        _fits(WEIGHT),
        frozenset("heavy weigh weighs schwer wiegt pese pesa".split()),
    ),
    Kind(
        "height",
        (r"\bhow tall\b|\bwie groß (?:ist|bist|sind)\b|\bquelle taille (?:fait|mesure)|\bcuánto mide\b"),
        _fits(HEIGHT),
        frozenset("tall gross mide".split()),
    ),
    Kind(
        "duration or distance",
        (
            r"\bhow (?:long|far)\b|\bwie (?:lange?|weit)\b|\bcombien de temps\b|\bà quelle distance\b|\bcuánto (?:tiempo"
            r"|dura)\b|\ba qué distancia\b"
        ),
        _fits(DURATION),
        frozenset("long far lange weit temps distance tiempo dura distancia last lasts take takes dauert".split()),
    ),
    Kind(
        "time",
        (
            r"\bdate of birth\b|\bgeburtsdatum\b|\bdate de naissance\b|\bfecha de nacimiento\b"
            r"|^\W*(?:[\w']+ ){0,2}(?:when|wann|quand|cuándo)\b|\b(?:what time|what date|which date|wh(?:at"
            r"|ich) (?:week)?days?|(?:what|which) (?:month|year)"
            r"|welche[mnrs]? (?:tag|datum)|um wie ?viel uhr|quel jour|à quelle heure|qué día|a qué hora)\b"
        ),
        _fits(WHEN),
        frozenset("time date day weekday month year tag datum uhr jour heure dia hora days".split()),
    ),
    Kind(
        "number",
        (
            r"\b(?:how (?:much|many|often|big|large|high|deep|wide|hot|cold|fast|strong)|number|reference|pin|combination|port"
            r"|wie (?:viele?|oft|groß|hoch|tief|breit|heiß|kalt|schnell)|wieviele?|nummer"
            r"|combien|numéro|cuánt[oa]s?|número)\b"
        ),
        _holds_number,
        frozenset("much many often big large high deep wide hot cold fast strong viele oft gross hoch tief".split()),
    ),
    Kind(
        "number",
        (
            r"\b(?:code|price|costs?|budget|size|temperature|pressure|größe|preis|temperatur|druck|taille|prix"
            r"|température|tamaño|precio|temperatura)\b"
        ),
        _fits(ANY_NUMBER),
    ),
)
