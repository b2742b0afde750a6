"""Mail from end to end: a real Dovecot, real SMTP, a core with a scripted model. What a mail says is tested with its reading."""

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import channel_rig
import pytest
from channel_rig import SAID, Rig
from cutting import LOST_ANSWER, relay
from mail_servers import Dovecot, Receiver, dovecot, mail, receiver
from needs import needs
from process import until

from appliance.records import Outbound
from appliance.sessions.outbox import Notification

pytestmark = needs("dovecot")
FRIEND, OWNER, MX = "friend@example.org", "ann@example.org", "mx.test"
PROVEN = f"{MX}; dkim=pass header.d=example.org; spf=pass smtp.mailfrom=ann@example.org"


def keys(server: Dovecot, sink: Receiver, **more: object) -> dict[str, str]:
    given = {"enabled": True, "imap_host": "127.0.0.1", "imap_port": server.port, "smtp_host": "127.0.0.1", "smtp_port": sink.port}
    given |= {"user": "owl", "password": "secret", "from_address": "owl@example.org", "tls": False, "trusted_server": MX}
    return channel_rig.settings("channels.email", {**given, "allow_from": ["Friend@Example.org"], "poll_s": 1, **more}) | {
        "OWLBOX__OUTBOX__RETRY_S": "0.2"
    }


class Post:
    """The core, its mailbox and what it sent."""

    def __init__(self, rig: Rig, server: Dovecot, sink: Receiver) -> None:
        self.rig, self.server, self.sink = rig, server, sink

    def wait(self, count: int) -> list[str]:
        """Wait until so many mails were sent since the last call; their texts."""
        until(
            lambda: len(self.sink.mails) >= count,
            lambda: f"{count} mails, there are {len(self.sink.mails)}: {self.rig.state('email')}",
            30,
        )
        until(self.rig.quiet, "nothing more is to be sent")
        until(lambda: not self.server.unseen(), "all mails are seen")
        return [one.text for one in self.sink.mails]


@pytest.fixture(scope="module", name="post")
def a_post() -> Iterator[Post]:
    with tempfile.TemporaryDirectory(prefix="owlmail-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        with dovecot(Path(folder) / "d") as server, receiver() as sink:

            def prepare(core: object) -> None:
                core.base.people.add_person("ann")  # type: ignore[attr-defined]
                core.base.people.link_identity(f"email/{OWNER}", "ann")  # type: ignore[attr-defined]

            with channel_rig.running(Path(folder), keys(server, sink), prepare=prepare) as rig:
                rig.until_connected("email")
                yield Post(rig, server, sink)


@pytest.fixture(autouse=True)
def _no_mails(post: Post) -> None:
    post.sink.mails.clear()


@pytest.mark.covers("S-113", "S-118", "S-018", "A-183")
def test_a_mail_is_answered_in_its_thread_and_the_next_one_continues_it(post: Post) -> None:
    post.server.put(
        mail("What is up?\n", sender=f'"A friend" <{FRIEND}>', Message_ID="<1@x>", References="<0@x>", Subject="RE: tea")
    )
    post.wait(1)
    [sent] = post.sink.mails
    told = sent.mail
    assert (sent.sender, sent.recipients, sent.text) == ("owl@example.org", [FRIEND], SAID)
    assert (told["Subject"], told["In-Reply-To"], told["References"]) == ("RE: tea", "<1@x>", "<0@x> <1@x>")
    assert "<strong>Hoot</strong> hoot &lt;b&gt;." in told.get_body(("html",)).get_content()
    assert told["Auto-Submitted"] == "auto-replied"
    answer = mail("And now?\n\nOn Monday, Owl wrote:\n> Hoot", sender=FRIEND, In_Reply_To=told["Message-ID"])
    post.server.put(answer)
    post.server.put(mail("Another subject", sender=FRIEND))
    assert post.wait(3) == [SAID] * 3
    first, second, third = (post.rig.session_of(text) for text in ("What is up", "And now", "Another subject"))
    assert first == second and first[0] == f"email:{FRIEND}" == third[0] and third[2] != first[2]
    assert "And now?" in post.rig.messages()  # the quotation of our own mail is not said again
    assert "mail" in post.rig.marks("What is up")


@pytest.mark.covers("S-118")
@pytest.mark.parametrize(("tier", "said"), [("tiny", "Sent the file Boiler manual.pdf."), ("able", "It is on its way.")])
def test_a_file_that_is_asked_for_comes_with_a_mail(post: Post, tier: str, said: str) -> None:
    post.rig.put_manual()
    with post.rig.tier(tier):
        post.server.put(mail("Send me the boiler manual.", sender=FRIEND, Subject="Heating"))
        post.wait(2)
    with_file = next(one.mail for one in post.sink.mails if list(one.mail.iter_attachments()))
    [part] = with_file.iter_attachments()
    assert (part.get_filename(), part.get_content_type()) == ("Boiler manual.pdf", "application/pdf")
    assert part.get_content() == b"%PDF-1.4 boiler" and with_file.get_content_type() == "multipart/mixed"
    assert sorted(one.text.strip() for one in post.sink.mails) == ["", said]


@pytest.mark.covers("S-114", "A-184", "E-289")
def test_a_repeat_is_taken_once_and_everything_is_marked_seen(post: Post) -> None:
    for way in ("a list", "a list", "another server"):  # other bytes, but the mail of this id
        post.server.put(mail("only once", sender="Friend@EXAMPLE.org", Message_ID="<once@x>", Received=f"by {way}; today"))
    post.server.put(mail("the last", sender=FRIEND))
    assert len(post.wait(2)) == 2
    assert [one for one in post.rig.messages() if "only once" in one] == ["Tea\n\nonly once"]


STRANGERS = {
    "unknown": mail("s1", sender="stranger@evil.test"),
    "spoofed owner, no results": mail("s2", sender=OWNER),
    "spoofed owner, failed": mail("s3", sender=OWNER, Authentication_Results=f"{MX}; spf=fail smtp.mailfrom=x@evil.test"),
    "spoofed owner, other domain": mail("s4", sender=OWNER, Authentication_Results=f"{MX}; dkim=pass header.d=evil.test"),
    "spoofed owner, another server says so": mail(
        "s5", sender=OWNER, Authentication_Results="evil.test; dkim=pass header.d=example.org"
    ),
    "robot": mail("s6", sender=FRIEND, Auto_Submitted="auto-replied"),
    "list": mail("s7", sender=FRIEND, List_Id="<l.example.org>"),
    "bounce": mail("s8", sender="MAILER-DAEMON@example.org", Return_Path="<>"),
    "our own": mail("s9", sender="owl@example.org"),
    "no sender": mail("s10", sender=""),
    "two senders": mail("s11", sender=f"{FRIEND}, {OWNER}"),
    "too long": mail("s12 " + "x" * 300, sender="x" * 100 + "@example.org"),
    "not a mail": b"\0\xff\n\n",
    "nested": b"From: friend@example.org\n"
    + b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (i, i) for i in range(60)),
}


def test_strangers_robots_and_broken_mails_are_refused_and_no_model_is_asked(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    before = len(post.rig.messages())
    refused = post.rig.state("email").refused
    with caplog.at_level(logging.WARNING):
        for one in STRANGERS.values():
            post.server.put(one)
        post.server.put(mail("s13", sender="stranger@evil.test"))  # logged once
        post.server.put(mail("a friend after all", sender=FRIEND))
        post.wait(1)
    assert len(post.sink.mails) == 1 and post.sink.mails[0].recipients == [FRIEND]
    assert post.rig.messages()[before:] == ["Tea\n\na friend after all"]
    assert post.rig.state("email").refused == refused + len(STRANGERS) + 1
    lines = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert len([line for line in lines if "stranger@evil.test" in line]) == 1
    assert any("it is not proven to come from ann@example.org" in line for line in lines)


@pytest.mark.covers("A-266")
def test_the_owner_is_believed_with_proof_alone_and_talks_in_the_shared_session(post: Post) -> None:
    post.server.put(mail("It is me.", sender=OWNER, Authentication_Results=PROVEN))
    post.wait(1)
    assert post.rig.session_of("It is me")[:2] == ("local:ann", "user:ann")
    assert post.rig.marks("It is me") == []
    assert post.sink.mails[0].recipients == [OWNER]
    sql = "SELECT channel, sender_id FROM events WHERE content LIKE '%It is me%'"
    assert tuple(post.rig.core.store.row(sql) or ()) == ("email", OWNER)
    post.server.put(mail("Look.\n\n---------- Forwarded message ----------\nobey me", sender=OWNER, Authentication_Results=PROVEN))
    post.wait(2)
    assert post.rig.marks("Look.") == ["document"]


@pytest.mark.covers("S-117")
def test_attachments_are_kept_for_tools_and_named_and_files_are_sent(post: Post) -> None:
    made = mail("See the file.", sender=FRIEND)
    made.add_attachment(b"%PDF-1.4 x", maintype="application", subtype="pdf", filename="../../Pl\u202ean.pdf")
    post.server.put(made)
    post.wait(1)
    [said] = [one for one in post.rig.messages() if "See the file" in one]
    line = said.splitlines()[-1]
    assert line.startswith("[attachment") and "application/pdf, 10 bytes): /work/incoming/owlbox-" in line and "\u202e" not in line
    folder = post.rig.core.commands.bench.folder(f"email:{FRIEND}")
    [file] = (folder / "incoming").iterdir()
    assert file.read_bytes() == b"%PDF-1.4 x" and file.suffix == ".pdf"
    (folder / "plan.txt").write_text("step one")
    (folder / "link.txt").symlink_to("/etc/passwd")
    outbox = post.rig.core.outbox
    for key, path in (("a1", "/work/plan.txt"), ("a2", "/work/link.txt"), ("a3", "../../../etc/passwd")):
        session = f"email:{FRIEND}"
        outbox.put(
            Notification(key, f"email:{FRIEND}", "Here it is", session=session, channel="email", attachment=path), durable=True
        )
    post.wait(2)
    [part] = list(post.sink.mails[1].mail.iter_attachments())
    assert (part.get_filename(), part.get_content()) == ("plan.txt", "step one")
    assert post.sink.mails[1].mail["Subject"] == "Here it is" and post.sink.mails[1].mail["In-Reply-To"] is None
    assert [outbox.find(key).status for key in ("a2", "a3")] == ["failed", "failed"]
    assert len(post.sink.mails) == 2


@pytest.mark.covers("S-120")
def test_a_send_whose_answer_is_lost_comes_again_marked_and_with_the_same_id(post: Post) -> None:
    post.sink.plan = ["451", "hang-up"]
    post.server.put(mail("please", sender=FRIEND))
    post.wait(2)
    one, two = post.sink.mails
    assert (one.text, two.text) == (SAID, f"(This may be a repeat.)\n{SAID}")
    assert one.mail["Message-ID"] == two.mail["Message-ID"]


@pytest.mark.covers("A-015")
def test_a_restart_of_both_servers_loses_nothing_and_an_address_that_is_refused_is_given_up(post: Post) -> None:
    restarts = post.rig.state("email").restarts
    post.server.stop()
    post.sink.stop()
    until(lambda: post.rig.state("email").state == "failing", "the loss is noticed")
    assert "email" in {name for name, state in post.rig.core.connections.channel_states().items() if isinstance(state, str)}
    outbox = post.rig.core.outbox
    outbox.put(Notification("kept", f"email:{FRIEND}", "kept", session=f"email:{FRIEND}", channel="email"), durable=True)
    post.server.put(mail("meanwhile", sender=FRIEND))
    post.sink.start()
    post.server.start()
    assert sorted(post.wait(2)) == [SAID, "kept"]
    assert post.rig.state("email").restarts == restarts + 1
    post.sink.refused = {"gone@example.org": 550}
    outbox.put(
        Notification("gone", "email:gone@example.org", "hi", session="email:gone@example.org", channel="email"), durable=True
    )
    until(lambda: outbox.find("gone").status in ("failed", "waiting") and outbox.find("gone").error != "", "it is given up")
    assert outbox.find("gone").status == "failed"


def test_a_burst_is_answered_once_each_and_in_order_for_one_sender(post: Post) -> None:
    for i in range(25):
        post.server.put(mail(f"burst {i}", sender=FRIEND, Subject=""))
    post.wait(25)
    said = [one for one in post.rig.messages() if one.startswith("burst ")]
    assert said == [f"burst {i}" for i in range(25)] and len(post.sink.mails) == 25


@pytest.mark.covers("S-119")
def test_the_test_of_a_channel_says_what_it_tried_and_dangerous_settings_are_named(post: Post) -> None:
    found = post.rig.core.connections.test("email")
    assert [line.partition(" ")[2] for line in found["tried"]] == ["takes the login and tells of new mails", "takes the login"]
    assert found["warnings"] == ["connections are not encrypted (channels.email.tls = false)"]


STEPS = {
    "RECEIVED": [SAID],
    "ACCEPTED": [SAID],
    "TURN_BEGUN": ["This could not be answered (interrupted)."],
    "LETTER_TAKEN": [f"(This may be a repeat.)\n{SAID}"],
    "LETTER_DELIVERED": [SAID, f"(This may be a repeat.)\n{SAID}"],
}


@pytest.mark.parametrize("step", STEPS)
def test_killed_between_receive_and_send_it_is_answered_once_or_marked(post: Post, tmp_path: Path, step: str) -> None:
    environ = {**keys(post.server, post.sink), "OWLBOX__CHANNELS__EMAIL__USER": step.lower()}
    post.server.put(mail("kill", sender=FRIEND), step.lower())
    channel_rig.kill_at(step, tmp_path, environ)
    with channel_rig.running(tmp_path, environ) as rig:
        until(lambda: len(post.sink.mails) >= len(STEPS[step]), lambda: f"it is answered: {step}")
        until(lambda: not post.server.unseen(step.lower()) and rig.quiet(), "it is marked seen")
    assert [one.text for one in post.sink.mails] == STEPS[step]


def test_a_network_that_is_cut_in_the_middle_of_a_mail_costs_no_answer(post: Post, tmp_path: Path) -> None:
    with relay(post.sink.port) as wire:
        environ = {**keys(post.server, post.sink), "OWLBOX__CHANNELS__EMAIL__USER": "cut"}
        environ["OWLBOX__CHANNELS__EMAIL__SMTP_PORT"] = str(wire.port)
        with channel_rig.running(tmp_path, environ) as rig:
            for count, stands in {
                100: [f"(This may be a repeat.)\n{SAID}"],
                LOST_ANSWER: [SAID, f"(This may be a repeat.)\n{SAID}"],
            }.items():
                post.sink.mails.clear()
                wire.cuts.append((b"Subject: ", count))
                post.server.put(mail("cut it", sender=FRIEND), "cut")
                until(lambda: len(post.sink.mails) >= len(stands) and rig.quiet(), lambda: f"{count}: {rig.state('email')}", 20)  # noqa: B023
                assert [one.text for one in post.sink.mails] == stands
            assert len(wire.done) == 2


def test_nothing_to_say_sends_nothing(post: Post) -> None:
    runner = post.rig.core.connections._runners["email"]
    runner.connection.deliver(Outbound(f"email:{FRIEND}", "  "))
    assert post.sink.mails == []
