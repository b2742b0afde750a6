"""Outlines of source code: what is found in each language, what only looks like it, and the limits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.text.source_outline import ENDINGS, MAX_CHARS, language_of, outline

SOURCES = {
    "a.py": (
        '"""Feeds owls.\n\nMore."""\nclass Owl(Bird, metaclass=M):\n    def hoot(self): ...\n    def _hide(self): ...\n'
        "async def feed(owl, *mice, at=1, **more): ...\nx = 'class No: pass'\n",
        "Feeds owls.\nclass Owl(Bird): hoot\ndef feed(owl, *mice, at, **more)",
    ),
    "a.ts": (
        "// class No {}\nexport class Owl extends Bird {}\nexport default async function feed(owl) {}\n"
        "const hoot = (n: number) => n;\n"
        "/* function never() {}\n*/ export interface Nest {}\nexport type Egg = string;\nconst s = `\nfunction text() {}\n`;\n",
        "class Owl\nfunction feed\ndef hoot\ninterface Nest\ntype Egg",
    ),
    "a.go": (
        "package p\n// func no() {}\nfunc (o *Owl) Hoot() {}\nfunc Feed() {}\ntype Owl struct {}\n",
        "func Hoot\nfunc Feed\ntype Owl",
    ),
    "a.rs": (
        "pub struct Owl<'a> { n: &'a str }\nimpl Owl<'_> {\n    pub async fn hoot(&self) {}\n}\nmacro_rules! feed { () => {} }\n",
        "struct Owl\nfn hoot\nmacro_rules feed",
    ),
    "A.java": (
        "public final class Owl {\n    private int n = f(1);\n    public void hoot(int n) {\n        return feed(n);\n    }\n}\n",
        "class Owl\ndef hoot",
    ),
    "a.kt": ("data class Owl(val n: Int)\nfun Owl.hoot() {}\nsuspend fun feed() {}\n", "class Owl\nfun hoot\nfun feed"),
    "a.swift": ("protocol Bird {}\npublic func hoot() {}\n", "protocol Bird\nfunc hoot"),
    "a.cs": ("namespace N {\n    public class Owl {\n        public void Hoot(int n) {\n", "namespace N\nclass Owl\ndef Hoot"),
    "a.php": (
        "<?php\nclass Owl {\n  public function hoot() {}\n}\nfunction feed() {}\n",
        "class Owl\nfunction hoot\nfunction feed",
    ),
    "a.c": (
        "#define SQUARE(x) ((x)*(x))\nstruct owl {\n  int n;\n};\nstatic int hoot(struct owl *o)\n"
        '{\n  if (o) feed(o);\n  puts("int no() {");\n}\n'
        "int declared(void);\n",
        "define SQUARE\nstruct owl\ndef hoot",
    ),
    "a.rb": ("module Birds\n  class Owl # class No\n    def hoot!\n    end\n", "module Birds\nclass Owl\ndef hoot!"),
    "a.sh": ("# no() {\nhoot() {\n  echo\n}\nfunction feed {\n}\n", "def hoot\ndef feed"),
    "a.lua": ("--[[ function no() ]]\nlocal function hoot() end\nfunction Owl:feed() end\n", "function hoot\nfunction Owl:feed"),
    "a.sql": (
        "-- create table no(x)\nCREATE TABLE IF NOT EXISTS owls (n INT);\ncreate unique index by_n on owls(n);\n",
        "table owls\nindex by_n",
    ),
    "a.pl": ("package Owl;\nsub hoot { }\n", "package Owl\nsub hoot"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_definitions_are_found_and_lookalikes_are_not(name: str):
    text, expected = SOURCES[name]
    assert outline(text, name) == expected


def test_every_language_has_an_example():
    assert {language_of(name) for name in SOURCES} == set(ENDINGS.values())


@pytest.mark.parametrize("name", ["notes.md", "a", "owl.png", ".py"[:1]])
def test_other_files_have_no_outline(name: str):
    assert outline("def f(): pass", name) == ""


def test_python_that_does_not_parse_has_no_outline():
    assert outline("def f(:\n", "a.py") == ""


def test_a_long_outline_says_how_much_is_left():
    text = "".join(f"def function_number_{n}(): pass\n" for n in range(500))
    found = outline(text, "a.py")
    assert len(found) <= MAX_CHARS
    shown = found.count("def ")
    assert found.endswith(f"… and {500 - shown} more")


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab \n(){}*/\"'`#-=<>;:,fnclass", max_size=300), st.sampled_from([e for e in ENDINGS if e != "py"]))
def test_any_text_has_an_outline_within_the_limit(text: str, ending: str):
    assert len(outline(text, f"a.{ending}")) <= MAX_CHARS
