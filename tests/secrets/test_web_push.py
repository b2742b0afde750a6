"""Encryption and signatures of Web Push, by the examples of RFC 8291 and RFC 8292, and read with code of its own."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from push_service import Device, Pushed, PushService, decoded, encoded

from appliance.errors import BadInput
from appliance.secrets import web_push
from appliance.secrets.web_push import MAX_TEXT_BYTES, RECORD_BYTES, DeviceKeys

# RFC 8291, section 5 and appendix A.
TEXT = b"When I grow up, I want to be a watermelon"
SENDER = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
RECEIVER = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"
PUBLIC = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
AUTH, SALT = "BTBZMqHH6r4Tts7J_aSIgg", "DGv6ra1nlYgDCS1FRnbzlw"
BODY = (
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6"
    "cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
)
# RFC 8292, section 2.4.
HEAD = "eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9"
CLAIMS = "eyJhdWQiOiJodHRwczovL3B1c2guZXhhbXBsZS5uZXQiLCJleHAiOjE0NTM1MjM3NjgsInN1YiI6Im1haWx0bzpwdXNoQGV4YW1wbGUuY29tIn0"


def test_the_example_of_the_standard_comes_out_to_the_bit() -> None:
    made = web_push.encrypt(TEXT, DeviceKeys(PUBLIC, AUTH), step=1, private=SENDER, salt=decoded(SALT))
    assert encoded(made) == BODY
    private = ec.derive_private_key(int.from_bytes(decoded(RECEIVER), "big"), ec.SECP256R1())
    assert Device(private, decoded(AUTH)).decrypt(decoded(BODY)) == TEXT


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 3000, MAX_TEXT_BYTES - 1, MAX_TEXT_BYTES])
def test_a_device_reads_what_was_encrypted_for_it_and_its_length_is_rounded_up(size: int) -> None:
    device = Device()
    made = web_push.encrypt(b"x" * size, DeviceKeys(public=device.keys["key"], auth=device.keys["auth"]))
    assert device.decrypt(made) == b"x" * size
    assert len(made) <= RECORD_BYTES and (len(made) == RECORD_BYTES or (len(made) - 103) % 512 == 0)
    with pytest.raises(Exception):  # noqa: B017 (whatever the cipher raises)
        Device().decrypt(made)


def test_a_message_says_whose_it_is_for_one_service_until_a_moment() -> None:
    key = web_push.new_key()
    made = web_push.authorization(key, "https://push.example.net", "mailto:push@example.com", 1453523768)
    assert made.startswith(f"vapid t={HEAD}.{CLAIMS}.")
    claims = PushService("").check_signature(Pushed("", {"authorization": made}, b""))
    assert claims["aud"] == "https://push.example.net" and claims["key"] == web_push.public_key(key)


@pytest.mark.parametrize(
    ("public", "auth"),
    [
        ("", AUTH),
        (PUBLIC, ""),
        (PUBLIC[:-4], AUTH),
        (PUBLIC + "AAAA", AUTH),
        (PUBLIC, AUTH + "AA"),
        (PUBLIC, AUTH[:-2]),
        ("A" * 87, AUTH),
        ("B" + "A" * 86, AUTH),  # no point of the curve
        (PUBLIC.replace("B", "!"), AUTH),
        ("é" * 87, AUTH),
    ],
)
def test_keys_that_are_none_are_refused_without_being_told(public: str, auth: str) -> None:
    with pytest.raises(BadInput) as error:
        DeviceKeys(public, auth).check()
    assert AUTH not in str(error.value) and "base64" not in (error.value.hint or "")


@pytest.mark.parametrize("private", ["", "x", "AA", "A" * 43, "_" * 43, encoded(b"\xff" * 32)])
def test_a_private_key_that_is_none_is_said_to_be(private: str) -> None:
    with pytest.raises(BadInput):
        web_push.public_key(private)


def test_what_is_too_long_is_refused() -> None:
    with pytest.raises(BadInput):
        web_push.encrypt(b"x" * (MAX_TEXT_BYTES + 1), DeviceKeys(PUBLIC, AUTH))
