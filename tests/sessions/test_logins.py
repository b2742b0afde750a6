"""Invites, passwords and sessions: an invite holds once, wrong attempts are limited, what is over is over, nothing is in plain."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from stores import new_store

from appliance.clock import sleep_s
from appliance.errors import BadInput, Exhausted, NotFound, OwlError, Refused
from appliance.policy.audit_log import Ledger
from appliance.runtime.events import Events
from appliance.runtime.methods import LocalCall
from appliance.runtime.paths import Home
from appliance.sessions.logins import MAX_COUNTED, AttemptLimit, Logins, LoginsEnded, Validity
from appliance.sessions.people import People
from appliance.store.database import Store

WORDS = "a barn by night"


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    made = new_store(home.database)
    yield made
    made.close()


@pytest.fixture
def build(store: Store) -> Callable[..., Logins]:
    def made(events: Events | None = None, **validity: float) -> Logins:
        return Logins(store, People(store), Ledger(store), events or Events(), lambda: Validity(**validity), cost=2**8)

    return made


@pytest.mark.covers("A-179")
def test_an_invite_makes_the_person_and_begins_one_session(build: Callable[..., Logins], store: Store) -> None:
    logins = build()
    invite = logins.invite_person("ann", call=LocalCall())
    begun = logins.redeem_invite(invite.invite, "a browser", "192.0.2.1", call=LocalCall())
    assert logins.check_token(begun.token) == {"person": "ann"} and People(store).show_person("ann").name == "ann"
    with pytest.raises(Refused):
        logins.redeem_invite(invite.invite, call=LocalCall())
    [login] = logins.list_logins("ann")
    assert (login.agent, login.address) == ("a browser", "192.0.2.1")
    stored = repr(store.rows("SELECT * FROM logins")) + repr(store.rows("SELECT * FROM invites"))
    assert begun.token not in stored and invite.invite not in stored
    with pytest.raises(BadInput):
        logins.invite_person("../ann", call=LocalCall())


def test_a_program_s_wrong_token_is_told_how_one_is_made(build: Callable[..., Logins]) -> None:
    for token, word in (("owl-guessed", "owlbox people token"), ("guessed", "log in again")):
        with pytest.raises(Refused) as refused:
            build(Events()).check_token(token)
        assert word in refused.value.hint and token not in str(refused.value)


def test_what_is_over_is_over(build: Callable[..., Logins]) -> None:
    ended: list[str] = []
    events = Events()
    events.subscribe(LoginsEnded, lambda one: ended.extend(one.ids))
    short = build(events, session_days=0.00000001, invite_h=0.0000001)
    invite = short.invite_person("ann", call=LocalCall()).invite
    sleep_s(0.01)
    with pytest.raises(Refused):
        short.redeem_invite(invite, call=LocalCall())
    long = build(events)
    begun = [long.redeem_invite(long.invite_person("ann", call=LocalCall()).invite, call=LocalCall()) for _ in range(3)]
    brief = short.redeem_invite(long.invite_person("ann", call=LocalCall()).invite, call=LocalCall())
    sleep_s(0.01)
    with pytest.raises(Refused):
        long.check_token(brief.token)
    assert long.leave(begun[0].token) == {"is_ended": True} and long.leave(begun[0].token) == {"is_ended": False}
    second = long.find(begun[1].token).id
    assert long.end_login(second).id == second and long.list_logins("ann")[0].id == long.find(begun[2].token).id
    with pytest.raises(NotFound):
        long.end_login(second)
    last = long.find(begun[2].token).id
    long.set_password(WORDS, "ann", call=LocalCall())
    assert long.list_logins() == [] and ended[1] == second and last in ended[2:]


def test_a_password_is_stored_as_scrypt_and_wrong_ones_are_limited(build: Callable[..., Logins], store: Store) -> None:
    logins, call = build(), LocalCall()
    with pytest.raises(BadInput, match="at least 10"):
        logins.set_password("short", "ann", call=call)
    logins.set_password(WORDS, "ann", call=call)
    assert WORDS not in repr(store.rows("SELECT * FROM passwords"))
    assert logins.enter_password("ann", WORDS, address="192.0.2.9", call=LocalCall()).person == "ann"
    answers = []
    for given in ("wrong", WORDS.upper(), "", "wrong again", "no", "nor this", WORDS):
        try:
            logins.enter_password("ann", given, address="192.0.2.1", call=LocalCall())
        except OwlError as error:
            answers.append(error.outcome)
    assert answers == ["permission"] * 6 + ["resource_exhausted"]
    assert logins.enter_password("ann", WORDS, address="192.0.2.2", call=LocalCall()).person == "ann", "she gets in from elsewhere"
    told = set()
    for name in ("ann", "nobody"):
        with pytest.raises(Refused) as refused:
            logins.enter_password(name, "x", call=LocalCall())
        told.add(str(refused.value))
    assert len(told) == 1, "whether there is such a person is not told"
    for _ in range(20):
        with pytest.raises(OwlError):
            logins.redeem_invite("wrong", address="192.0.2.3", call=LocalCall())
    with pytest.raises(Exhausted):
        logins.redeem_invite(logins.invite_person("ben", call=LocalCall()).invite, address="192.0.2.3", call=LocalCall())
    logins.set_password("", "ann", call=call)
    with pytest.raises(Refused):
        logins.enter_password("ann", WORDS, address="192.0.2.4", call=LocalCall())


@pytest.mark.covers("A-179")
def test_attempts_are_counted_by_who_makes_them_and_not_by_what_they_say(build: Callable[..., Logins]) -> None:
    logins, mallory = build(), LocalCall(person="mallory")
    for name in ("ben", "ann"):
        logins.set_password(WORDS, name, call=LocalCall())
    outcomes = []
    for number in range(8):
        with pytest.raises(OwlError) as error:
            logins.enter_password("ben", "wrong", address=f"10.0.0.{number}", call=mallory)
        outcomes.append(error.value.outcome)
    assert outcomes == ["permission"] * 6 + ["resource_exhausted"] * 2
    for _ in range(25):  # nobody is shut out of an address by somebody who only names it
        with pytest.raises(OwlError):
            logins.redeem_invite("wrong", address="192.0.2.1", call=mallory)
    assert logins.enter_password("ann", WORDS, address="192.0.2.1", call=LocalCall()).person == "ann"
    page = LocalCall(person="owlbox-web")
    for number in range(30):  # a subscriber has a whole network of addresses
        with pytest.raises(OwlError) as error:
            logins.enter_password("nobody", "wrong", address=f"2001:db8::{number}", call=LocalCall())
    assert error.value.outcome == "resource_exhausted"
    with pytest.raises(Refused):
        logins.enter_password("nobody", "wrong", address="2001:db8:0:1::1", call=LocalCall())
    assert logins._address_of(page, "192.0.2.1") == "owlbox-web", "a person may be called like the page's user"


@pytest.mark.covers("A-179")
def test_no_counter_is_pushed_out_and_attempts_are_counted_before_they_are_judged(build: Callable[..., Logins]) -> None:
    logins = build()
    logins.set_password(WORDS, "ben", call=LocalCall())
    for _ in range(6):
        with pytest.raises(Refused):
            logins.enter_password("ben", "wrong", address="192.0.2.1", call=LocalCall())
    for number in range(5000):
        logins._attempts.begin([("invite", f"e{number}"), ("address", f"e{number}")])
    with pytest.raises(Exhausted):
        logins.enter_password("ben", WORDS, address="192.0.2.1", call=LocalCall())
    for _ in range(40):  # what was right is none that failed
        assert logins.enter_password("ben", WORDS, address="192.0.2.2", call=LocalCall()).person == "ben"
    slow = Logins(logins._store, logins._people, logins._ledger, Events(), Validity, cost=2**12)
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: try_password(slow), range(16)))
    assert sorted(found) == ["permission"] * 6 + ["resource_exhausted"] * 10


def test_nobody_is_locked_out_of_where_they_are_logged_in(build: Callable[..., Logins]) -> None:
    logins = build()
    logins.set_password(WORDS, "ann", call=LocalCall())
    logins.enter_password("ann", WORDS, address="2001:db8:1::5", call=LocalCall())
    for number in range(36):
        with pytest.raises(OwlError):
            logins.enter_password("ann", "wrong", address=f"192.0.2.{number}", call=LocalCall())
    for address in ("192.0.2.200", "2001:db8:2::5"):
        with pytest.raises(Exhausted):
            logins.enter_password("ann", WORDS, address=address, call=LocalCall())
    assert logins.enter_password("ann", WORDS, address="2001:db8:1::77", call=LocalCall()).person == "ann"
    for _ in range(6):
        with pytest.raises(Refused):
            logins.enter_password("ann", "wrong", address="2001:db8:1::5", call=LocalCall())
    with pytest.raises(Exhausted):
        logins.enter_password("ann", WORDS, address="2001:db8:1::5", call=LocalCall())


def test_invites_hold_however_many_addresses_have_tried_others() -> None:
    limit = AttemptLimit()
    for number in range(MAX_COUNTED + 5):
        limit.begin([("invite", f"net {number}")])
    with pytest.raises(Exhausted):
        for _ in range(21):
            limit.begin([("invite", "net")])


def try_password(logins: Logins) -> str:
    with pytest.raises(OwlError) as error:
        logins.enter_password("ben", "wrong", address="192.0.2.3", call=LocalCall())
    return error.value.outcome
