"""Which files hold keys and passwords, by their names or how they begin, so that a folder is not told with its secrets.

Pure. Not promised: that every secret is known here. These are the places where programs keep theirs; a password
in somebody's notes looks like any other word.
"""

import re

NAMES = frozenset(
    "id_rsa id_dsa id_ecdsa id_ecdsa_sk id_ed25519 id_ed25519_sk .netrc _netrc .pgpass .git-credentials .npmrc .pypirc .htpasswd "
    ".vault_pass .ssh .gnupg .aws .azure .kube .docker .password-store".split()
)
ENDINGS = frozenset("kdb kdbx p12 pfx jks keystore ppk".split())
EXAMPLES = frozenset("example sample template dist".split())  # of a .env: made to be read
KEY = re.compile(rb"\s*-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----")


def is_secret(name: str) -> bool:
    """Whether a file or folder of this name is where a program keeps keys or passwords."""
    lower = name.lower()
    ending = lower.rpartition(".")[2] if "." in lower else ""
    if lower == ".env" or lower.startswith(".env."):
        return ending not in EXAMPLES
    return lower in NAMES or ending in ENDINGS


def is_key(head: bytes) -> bool:
    """Whether what begins so is a private key."""
    return KEY.match(head) is not None
