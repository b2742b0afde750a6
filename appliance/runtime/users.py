"""Names of the users of this machine."""

import pwd


def user_name(uid: int) -> str:
    """The name of a user, the number of one without."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
