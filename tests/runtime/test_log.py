"""The log: JSON lines, secrets hidden wherever they stand, and never a reason to fall over."""

import gzip
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.policy import audit_file
from appliance.runtime import log, shutdown
from appliance.runtime.log import HIDDEN, JsonLines, QuietFile, Redactor
from appliance.runtime.settings import Config
from appliance.service import maintenance
from appliance.sessions import sessions

ROOT = Path(__file__).parents[2]
LOG = logging.getLogger("appliance.test")
# Quotes, newlines, backslashes and non-ASCII change when they are quoted: the secret must be found all the same.
SECRETS = [
    "plain-secret",
    'quo"ted"',
    "it's",
    "two\nlines",
    "back\\slash",
    "Zoë-geheim",
    "päß wörd\t1",
    '{"json": "é"}',
    "\x1b[31mred",
]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "logs"
    log.stop()
    logging.getLogger(log.ROOT).propagate = True


def lines(folder: Path, process: str = "core") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{process}.log").read_text(encoding="utf-8").splitlines()]


def test_a_line_is_one_json_object_with_when_where_and_who(folder: Path) -> None:
    log.start("core", folder, "info", Redactor())
    with log.correlated("abc"):
        LOG.info("hoot %d", 3, extra={"operation": "x", "n": 2, "deep": {"a": [1, None, True]}})
    LOG.debug("not at this level")
    (line,) = lines(folder)
    assert (line["message"], line["level"], line["process"], line["where"]) == ("hoot 3", "info", "core", "test")
    assert (line["correlation"], line["pid"], line["operation"], line["n"]) == ("abc", os.getpid(), "x", 2)
    assert line["deep"] == {"a": [1, None, True]} and line["at"].endswith("Z") and log.correlation() == ""


@pytest.mark.parametrize(("level", "seen"), [("debug", 4), ("info", 3), ("warn", 2), ("error", 1), ("silent", 0), ("", 3)])
def test_a_level_keeps_what_is_at_least_as_grave(folder: Path, level: str, seen: int) -> None:
    log.start("core", folder, level, Redactor())
    for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        LOG.log(number, "x")
    assert (len(lines(folder)) if seen else int((folder / "core.log").exists())) == seen


def test_text_with_line_breaks_and_lone_surrogates_stays_one_line(folder: Path) -> None:
    log.start("core", folder, "info", Redactor())
    LOG.info("one\ntwo\u2028three \ud800", extra={"x": "\n\r"})
    LOG.info("next")
    raw = (folder / "core.log").read_bytes()
    assert raw.count(b"\n") == 2 and [json.loads(part)["message"][:3] for part in raw.splitlines()] == ["one", "nex"]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_known_secret_is_nowhere_in_the_file(folder: Path, secret: str) -> None:
    log.start("core", folder, "info", Redactor([secret]))
    LOG.info("message %s", secret)
    LOG.info("quoted %s %r", json.dumps({"key": secret}), secret)
    LOG.info("extra", extra={"text": f"a{secret}b", "deep": {"list": [secret, {secret: 1}]}, "thing": ValueError(secret)})
    try:
        raise KeyError(secret, {"config": secret})
    except KeyError:
        LOG.exception("failed on %s", secret)
    text = (folder / "core.log").read_text(encoding="utf-8")
    forms = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}
    twice = {json.dumps(form)[1:-1] for form in forms} | {json.dumps(form, ensure_ascii=False)[1:-1] for form in forms}
    assert not [form for form in forms | twice if form in text]
    assert len(lines(folder)) == 4 and text.count(HIDDEN) >= 9


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(min_size=4, max_size=20), st.text(max_size=10))
def test_any_secret_is_hidden_and_the_line_stays_json(secret: str, around: str) -> None:
    formatter = JsonLines("core", Redactor([secret]))
    record = logging.makeLogRecord({"msg": "%s", "args": (around + secret + around,), "x": {"y": secret}, "name": "appliance.t"})
    parsed = json.loads(formatter.format(record))
    assert parsed["x"] == {"y": HIDDEN} or secret in HIDDEN
    assert secret not in parsed["message"] or secret in HIDDEN or secret in around + HIDDEN + around


def test_a_secret_learnt_later_is_hidden_too_and_a_tiny_one_is_not() -> None:
    redactor = Redactor()
    assert redactor.clean("tulip field") == "tulip field"
    redactor.add("tulip", "of", "")
    assert redactor.clean("tulip field of gold") == f"{HIDDEN} field of gold"
    longer = Redactor(["abcd", "abcdefgh"])
    assert longer.clean("abcdefgh") == HIDDEN


@pytest.mark.parametrize(
    "text",
    [
        "sk-ant-api03-AbCdEf0123456789AbCdEf0123456789",
        "sk-proj-0123456789abcdefghij",
        "sk_live_4eC39HqLyjWDarjtT1zdp7dc",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "github_pat_11ABCDEFG0123456789_abcdef",
        "xoxb-123456789012-abcdefghijkl",
        "glpat-0123456789abcdefghij",
        "AIzaSyA-1234567890abcdefghijklmnopqrstuv",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1r",
    ],
)
def test_what_is_shaped_like_a_key_is_hidden(text: str) -> None:
    assert Redactor().clean(f"before {text}") == f"before {HIDDEN}"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Authorization: Bearer abc.def-123456", f"Authorization: Bearer {HIDDEN}"),
        ("https://x.org/?token=s3cr3t&a=1", f"https://x.org/?token={HIDDEN}&a=1"),
        ("password='x' user=ada", "password='x' user=ada"),
        ("password=hunter2 user=ada", f"password={HIDDEN} user=ada"),
        ("api_key=12", f"api_key={HIDDEN}"),
    ],
)
def test_a_value_after_its_name_is_hidden_alone(text: str, clean: str) -> None:
    assert Redactor().clean(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "task-0123456789abcdefghij",
        "risk-assessment-of-things-here",
        "multi-skilled-workers-and-others",
        "skateboarding-championship",
        "skills/gardening-in-winter-2026",
        "desk-0123456789012345678901234567",
        "pkgconfig-directory-of-things",
        "rkhunter_report_for_this_month",
        "disk-usage-report-2026-11-21-core",
        "01a20069-0617-75bf-9528-24c5a66b547a",
        "sk-is-no-key-but-only-words",
        "tokens=42",
        "Bearer of bad news",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    assert Redactor().clean(f"see {text}.") == f"see {text}."


@pytest.mark.parametrize("inner", ['password=ab"c', "-----BEGIN X PRIVATE KEY-----\nabc", "Bearer abcdefgh\\"])
def test_hiding_inside_a_field_leaves_the_line_json(folder: Path, inner: str) -> None:
    log.start("core", folder, "info", Redactor())
    LOG.info("x", extra={"deep": {"url": inner}, "after": "kept"})
    (line,) = lines(folder)
    assert HIDDEN in line["deep"]["url"] and line["after"] == "kept"


# -- where it goes ------------------------------------------------------------------------------------


def test_a_full_disk_is_swallowed() -> None:
    handler = QuietFile(Path("/dev/full"))
    handler.setFormatter(JsonLines("core", Redactor()))
    logger = logging.Logger("full")
    logger.addHandler(handler)
    for _ in range(100):
        logger.error("x" * 500)
    handler.close()


def test_a_log_that_cannot_be_opened_is_swallowed(tmp_path: Path) -> None:
    (tmp_path / "core.log").mkdir()
    log.start("core", tmp_path, "info", Redactor())
    LOG.error("nowhere to go")
    log.stop()
    assert (tmp_path / "core.log").is_dir()


def test_files_are_rotated_and_bounded(folder: Path) -> None:
    folder.mkdir()
    logger, handler = logging.Logger("much"), QuietFile(folder / "core.log", 20_000)
    logger.addHandler(handler)
    for number in range(600):
        logger.error('{"number": %d, "x": "%s"}', number, "x" * 200)
    handler.close()
    assert sorted(f.name for f in folder.iterdir()) == ["core.log", "core.log.1.gz", "core.log.2.gz", "core.log.3.gz"]
    texts = [gzip.decompress((folder / f"core.log.{n}.gz").read_bytes()).decode() for n in (3, 2, 1)]
    texts.append((folder / "core.log").read_text())
    assert all(len(text) <= 20_000 for text in texts) and len(texts[0]) > 19_000
    numbers = [json.loads(line)["number"] for text in texts for line in text.splitlines()]
    assert numbers == list(range(numbers[0], 600)), "the newest of all, none twice"


def test_a_log_that_cannot_be_compressed_is_kept_as_it_is(folder: Path) -> None:
    folder.mkdir()
    (folder / "core.log").write_text("one\n")
    (folder / "core.log.1.gz").mkdir()  # nothing can take its place, as on a full disk
    log.compress(str(folder / "core.log"), str(folder / "core.log.1.gz"))
    assert sorted(path.name for path in folder.iterdir()) == ["core.log.1", "core.log.1.gz"]
    assert (folder / "core.log.1").read_text() == "one\n"


def grow(path: Path, size: int) -> None:
    path.parent.mkdir(exist_ok=True)
    path.touch()
    os.truncate(path, size)


@pytest.mark.covers("A-264")
def test_a_log_is_turned_over_and_compressed_at_the_default_size_and_three_are_kept(folder: Path) -> None:
    logger, handler = logging.Logger("much"), QuietFile(folder / "core.log")
    logger.addHandler(handler)
    grow(folder / "core.log", 4_999_000)
    logger.error("there is room for this")
    assert [f.name for f in folder.iterdir()] == ["core.log"]
    for _ in range(5):
        handler.close()
        grow(folder / "core.log", 5_000_000)
        logger.error("and none for this")
    handler.close()
    assert sorted(f.name for f in folder.iterdir()) == ["core.log", *(f"core.log.{n}.gz" for n in (1, 2, 3))]
    assert maintenance.LOGS_DAYS == 28


@pytest.mark.covers("A-264")
def test_the_audit_file_is_turned_over_at_100_mb_and_ten_are_kept(folder: Path) -> None:
    path, file = folder / "audit.log", audit_file.AuditFile(lambda handle: None)
    for _ in range(12):
        grow(path, 99_999_990)
        file.append(path, {"kind": "hoot"})
    file.close()
    assert sorted(f.name for f in folder.iterdir()) == sorted(f"audit.log.{n}" for n in range(1, 11))


@pytest.mark.covers("A-264")
def test_each_other_default_is_the_usual_one_or_the_documents_say_why_not() -> None:
    keys = Config()
    assert shutdown.TOTAL_S == 30
    page = (ROOT / "docs/guides/watching.md").read_text().partition("## Defaults that differ")[2]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")][1:]
    usual = {row[0]: (row[1], row[2]) for row in rows}
    for what, here, elsewhere in (
        ("a silent conversation", f"{sessions.IDLE_S / 60:g} minutes", "30 minutes"),
        ("cleaning up", "once a day", "5 minutes"),
        ("events", "rows of the database", "10,000 in memory, 4 workers, 3 tries"),
        ("figures", "no port" if keys.metrics.port == 0 else "", "port 9090, every 15 s"),
        ("a new key for the vault", "owlbox secret rotate", "90 days"),
        ("a row of the audit", f"{keys.runs.retention_days} days", "30 days"),
    ):
        assert here and here in usual[what][0] and elsewhere in usual[what][1], what
    assert keys.sessions.archival.inactivity_s == 86_400 and "archived after a day" in usual["a silent conversation"][0]


def test_nothing_is_written_while_nothing_happens(folder: Path) -> None:
    log.start("core", folder, "info", Redactor())
    assert list(folder.iterdir()) == []
    LOG.info("one")
    before = (folder / "core.log").stat()
    log.start("core", folder, "info", Redactor())
    after = (folder / "core.log").stat()
    assert (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)


def test_without_journald_a_service_logs_to_stderr_and_a_process_without_one_to_its_file(tmp_path: Path) -> None:
    code = (
        "import logging, sys\nfrom pathlib import Path\nfrom appliance.runtime import log\n"
        "class NoSystemd:\n    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'systemd': raise ImportError('not here')\n"
        "sys.meta_path.insert(0, NoSystemd())\n"
        "log.start('core', Path(sys.argv[1]), 'info', log.Redactor(), is_service=True)\n"
        "logging.getLogger('appliance.x').info('hoot')\n"
        "log.start('core', Path(sys.argv[1]), 'info', log.Redactor())\nlogging.getLogger('appliance.x').info('to the file')\n"
        "log.start('core', None, 'info', log.Redactor())\nlogging.getLogger('appliance.x').info('nowhere else')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=180, check=True)
    assert [json.loads(line)["message"] for line in done.stderr.splitlines()] == ["hoot", "nowhere else"]
    assert [line["message"] for line in lines(tmp_path)] == ["to the file"] and done.stdout == ""


def test_starting_again_and_stopping_leave_no_handler_behind(folder: Path) -> None:
    for process in ("one", "two"):
        log.start(process, folder, "info", Redactor())
    LOG.info("x")
    assert sorted(f.name for f in folder.iterdir()) == ["two.log"]
    log.stop()
    LOG.info("y")
    assert len(lines(folder, "two")) == 1
