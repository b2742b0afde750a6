"""How a text falls into words, numbers and marks, for the lexicon and for the tokenizer."""

import re

WORD = re.compile(r"\d+|[^\W\d_]+(?:'[^\W\d_]+)*|[^\w\s]|_")
