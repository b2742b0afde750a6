"""What is read out of a mail and what is proven about its sender, and what a mail of ours looks like. No server."""

from collections.abc import Sequence
from email import message_from_bytes, policy
from pathlib import Path

import pytest
from mail_servers import mail

from appliance.channels.connections import pause_s
from appliance.channels.connectors import email
from appliance.channels.connectors.email import received
from appliance.channels.mail import reading
from appliance.channels.mail.reading import read_results
from appliance.errors import BadInput, NotFound, Refused
from appliance.records import Outbound
from appliance.sandbox.session_files import read_attachment

MX, OWL = "mx.test", "owl@example.org"


def read(data: bytes, html: str = "from html") -> reading.Mail:
    head = reading.read_head(data, own_address=OWL, trusted_server=MX)
    return reading.read_content(data, head, lambda body, charset: html)


def raw(kind: str, body: str | bytes, *more: str) -> bytes:
    head = "\n".join(["From: Ann <Ann@Example.org>", "Message-ID: <1@x>", f"Content-Type: {kind}", *more])
    return head.encode() + b"\n\n" + (body if isinstance(body, bytes) else body.encode())


def parts(kind: str, *inner: str) -> bytes:
    return raw(f"{kind}; boundary=B", "".join(f"--B\n{one}\n" for one in inner) + "--B--\n")


PLAIN, HTML = "Content-Type: text/plain\n\nplain words", "Content-Type: text/html\n\n<b>html</b>"
FILE = 'Content-Type: application/pdf\nContent-Disposition: attachment; filename="a.pdf"\n\n%PDF'
ALTERNATIVE = f"Content-Type: multipart/alternative; boundary=C\n\n--C\n{HTML}\n--C\n{PLAIN}\n--C--\n"
SIGNED = 'multipart/signed; protocol="application/pgp-signature"'
SMIME = 'multipart/signed; protocol="application/pkcs7-signature"'
BODIES = {
    "plain before html": (parts("multipart/alternative", PLAIN, HTML), "plain words", "none", 0),
    "html first": (parts("multipart/alternative", HTML, PLAIN), "plain words", "none", 0),
    "html only": (parts("multipart/alternative", HTML), "from html", "none", 0),
    "mixed, in order": (parts("multipart/mixed", ALTERNATIVE, FILE), "plain words", "none", 1),
    "signed by pgp": (parts(SIGNED, PLAIN, "Content-Type: application/pgp-signature\n\nsig"), "plain words", "pgp", 0),
    "signed by smime": (parts(SMIME, PLAIN, FILE), "plain words", "smime", 0),
    "nothing": (parts("multipart/mixed", FILE), reading.NO_TEXT, "none", 1),
    "unknown charset": (raw("text/plain; charset=nonsense", "caf\u00e9".encode("latin-1")), "caf\u00e9", "none", 0),
    "wrong charset": (raw("text/plain; charset=utf-8", b"caf\xe9"), "caf\u00e9", "none", 0),
    "encrypted": (parts("multipart/encrypted", PLAIN), "(an encrypted mail, which cannot be read here)", "none", 0),
    "another mail": (
        parts("multipart/mixed", PLAIN, "Content-Type: message/rfc822\n\nFrom: x@y.z\n\nhi"),
        "plain words",
        "none",
        1,
    ),
}


@pytest.mark.covers("S-115", "S-116", "E-288")
@pytest.mark.parametrize("name", BODIES)
def test_the_words_of_a_mail_are_found(name: str) -> None:
    data, words, signature, files = BODIES[name]
    found = read(data)
    assert (found.words, found.signature, len(found.attachments)) == (words, signature, files)
    assert found.head.sender == "ann@example.org"


QUOTATIONS = [
    ("yes\n\n-- \nAnn\n+49 1", "yes", ""),
    ("yes\n\nSent from my phone", "yes", ""),
    ("yes\n\nOn Monday, Owl <o@x> wrote:\n> tea?", "yes", "On Monday, Owl <o@x> wrote:\n> tea?"),
    ("yes\n\nAm 1.1.2030 um 9:00\nschrieb Owl:\n> tea?", "yes\n\nschrieb Owl:", "> tea?"),
    ("On Monday Owl wrote:\n> tea?\ngreen please", "green please", "> tea?"),
    ("see below\n-------- Forwarded message --------\nobey", "see below", "-------- Forwarded message --------\nobey"),
    ("see\n____________\nFrom: Bob\nobey", "see", "____________\nFrom: Bob\nobey"),
]


@pytest.mark.parametrize(("text", "own", "quoted"), QUOTATIONS)
def test_signatures_are_cut_and_what_is_repeated_is_told_apart(text: str, own: str, quoted: str) -> None:
    found = reading.split_quotation(text)
    assert found[0] == own or "schrieb" in own
    assert found[1].endswith(quoted) if "schrieb" in own else found[1] == quoted


def test_a_long_hostile_text_is_split_at_once() -> None:
    found = reading.split_quotation(("On " + "wrote " * 60 + "\n") * 5000)
    assert found[1] == ""


SENDERS: Sequence[tuple[str, str]] = [
    ("ann@example.org", "ann@example.org"),
    ('"Smith, Ann" <ANN@example.org>', "ann@example.org"),
    ("=?utf-8?q?J=C3=B6?= <j@example.org>", "j@example.org"),
    ("ann@example.org, bob@example.org", ""),
    ("owner@example.org <x@evil.test> <owner@example.org>", ""),
    ('"a" <owner@example.org>, x@evil.test', ""),
    ("owner@example.org(x@evil.test)", ""),
    ("group: ann@example.org;", ""),
    ("", ""),
]


@pytest.mark.covers("E-289")
@pytest.mark.parametrize(("given", "sender"), SENDERS)
def test_a_sender_is_one_plain_address_or_the_mail_is_not_read(given: str, sender: str) -> None:
    data = b"From: " + given.encode() + b"\nMessage-ID: <1@x>\n\nhi"
    if sender:
        assert read(data).head.sender == sender
    else:
        with pytest.raises(BadInput):
            read(data)
    with pytest.raises(BadInput):
        read(b"From: ann@example.org\n" + data)


RESULTS = [
    (f'{MX}; dkim=pass (2048-bit key) header.d=example.org header.b="ab+/"; spf=fail smtp.mailfrom=x@y.z', True),
    (f"{MX} 1; dmarc=pass header.from=example.org", True),
    (f"{MX}; spf=pass smtp.mailfrom=bounce@example.org", True),
    (f"{MX}; spf=pass (sender (nested) ok) smtp.mailfrom=example.org", True),
    (f"{MX}; dkim=pass header.d=evil.test", False),
    (f"{MX}; dkim=pass header.d=org", False),
    (f"{MX}; dkim=pass header.d=mail.example.org", False),
    (f"{MX}; dkim=pass header.d=example.org; dmarc=fail header.from=example.org", False),
    (f"{MX}; dkim=pass header.d=example.org; dmarc=none header.from=example.org", True),
    (f"{MX}; dkim=fail header.d=example.org; dkim=pass header.d=evil.test", False),
    (f'{MX}; spf=pass smtp.mailfrom="a; dmarc=pass header.from=example.org"@evil.test', False),
    (f"{MX}; spf=pass (of a) dmarc=pass header.from=example.org ) smtp.mailfrom=x@evil.test", False),
    (f"{MX}; dmarc=pass header.from=evil.test; dmarc=pass header.from=example.org", False),
    (f"{MX}.evil.test; dkim=pass header.d=example.org", False),
    ("other.test; dkim=pass header.d=example.org", False),
    (f"{MX}; none", False),
]


@pytest.mark.parametrize(("header", "is_proven"), RESULTS)
def test_only_a_clear_result_of_the_trusted_server_proves_a_sender(header: str, is_proven: bool) -> None:
    assert read_results([header], MX, "ann@example.org").is_proven is is_proven
    assert not read_results([header], "", "ann@example.org").is_proven
    forged = [f"{MX}; dkim=none", header]
    assert not read_results(forged, MX, "ann@example.org").is_proven


ANSWERED = {"mail": {"address": "ann@example.org", "subject": "Tea", "message_id": "<2@x>", "references": ["<1@x>"]}, "seq": 3}


@pytest.mark.covers("S-118", "E-290")
@pytest.mark.parametrize(
    ("subject", "shown"), [("RE: x", "RE: x"), ("re : x", "re : x"), ("x", "Re: x"), ("Regret", "Re: Regret"), ("", "Re:")]
)
def test_an_answer_has_exactly_one_re_and_the_chain_of_ids(subject: str, shown: str) -> None:
    mailed = {**ANSWERED["mail"], "subject": subject}  # type: ignore[dict-item]
    made = email.build_mail(
        Outbound("local:ann", "**hi** <script>", metadata={**ANSWERED, "mail": mailed}, key="k", run="r-1"), OWL
    )
    again = message_from_bytes(made.as_bytes(), policy=policy.default)
    assert (again["Subject"], again["In-Reply-To"], again["References"]) == (shown, "<2@x>", "<1@x> <2@x>")
    assert "<strong>hi</strong> &lt;script&gt;" in again.get_body(("html",)).get_content()
    assert reading.OWN_ID.fullmatch(str(again["Message-ID"]))[1] == "r-1"  # type: ignore[index]


@pytest.mark.covers("E-290")
def test_a_new_mail_keeps_its_subject_and_long_ids_stay_whole() -> None:
    made = email.build_mail(
        Outbound("email:ann@example.org", "# The tea is ready\n\nNow.", metadata={"mail": ANSWERED["mail"]}, key="k"), OWL
    )
    assert (made["Subject"], made["In-Reply-To"], made["To"]) == ("The tea is ready", None, "ann@example.org")
    long = {**ANSWERED["mail"], "message_id": f"<{'i' * 300}@x>", "references": [f"<{i}{'r' * 90}@x>" for i in range(40)]}  # type: ignore[dict-item]
    told = message_from_bytes(email.build_mail(Outbound("", "hi", metadata={"mail": long, "seq": 1}, key="k"), OWL).as_bytes())
    assert told["In-Reply-To"].strip() == f"<{'i' * 300}@x>" and len(told["References"].split()) == 21
    with pytest.raises(BadInput):
        email.build_mail(Outbound("email:ann@example.org\nBcc: x@y.z", "hi", key="k"), OWL)


def test_our_own_words_are_not_repeated_and_a_forwarded_text_is() -> None:
    own = "<owlbox.0123456789abcdef.run-1@example.org>"
    answer = received(read(mail("yes\n\nOn Monday, Owl wrote:\n> tea?", In_Reply_To=own).as_bytes()))
    assert (answer.text, answer.own_chars, answer.references[0]) == ("yes", None, "run-1")
    other = received(read(mail("look\n---- Forwarded message ----\nobey", Subject="Hm").as_bytes()))
    assert other.text.startswith("Hm\n\nlook\n\n[The mail repeats:]\n") and other.text[: other.own_chars] == "Hm\n\nlook"


@pytest.mark.covers("E-291")
def test_pauses_between_tries_double_up_to_a_minute_and_begin_anew() -> None:
    assert [pause_s(failures) for failures in range(9)] == [0, 1, 2, 4, 8, 16, 32, 60, 60]


def test_a_file_is_sent_out_of_the_folder_of_the_session_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.txt").write_text("a")
    (tmp_path / "secret").write_text("s")
    (folder / "out").symlink_to(tmp_path)
    (folder / "link").symlink_to(tmp_path / "secret")
    assert read_attachment(folder, "/work/sub/a.txt") == read_attachment(folder, "sub/a.txt") == ("a.txt", b"a")
    for path, error in (
        ("link", Refused),
        ("out/secret", Refused),
        ("../secret", BadInput),
        ("/etc/passwd", BadInput),
        ("sub", Refused),
        ("no", NotFound),
    ):
        with pytest.raises(error):
            read_attachment(folder, path)
