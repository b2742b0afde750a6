"""Whether a file that steers the core can only have been written by the core's own user, or root.

The way to it is walked from / by descriptors, a component at a time: each has to belong to one of these users, and none may
be written to by others, up to the first folder that others cannot enter. A folder with the sticky bit counts as not written
to, because what is in it cannot be replaced; what others have added there belongs to them and is refused. Links are followed
and judged like folders. Not promised: what access lists (ACLs) allow beyond the mode, except where their mask shows in it.
"""

import errno
import os
import stat
from pathlib import Path

from appliance.errors import NotFound, Refused

MAX_LINKS = 16
OTHERS_WRITE, OTHERS_ENTER = 0o022, 0o011


def require_trusted(path: Path, *, home: Path | None = None, is_tree: bool = False) -> None:
    """Refused with the component that somebody else could have written; NotFound when there is nothing.

    The owner of `home` is trusted too. `is_tree` is for code: the file, or a folder with everything below, must be closed by
    its own modes, because others may have kept it open, or linked it, since they could get there; and nothing may be added.
    """
    trusted = owners(home)
    handle = _walk_path(path, trusted)
    try:
        if is_tree:
            _judge_part(os.fstat(handle), str(path), trusted, False, has_sticky=False)
            _require_tree(handle, path, trusted)
    finally:
        os.close(handle)


def problem(path: Path, *, home: Path | None = None) -> str:
    """Why a file is not trusted, with the next step; "" for one that is, or is not there."""
    try:
        require_trusted(path, home=home)
    except Refused as error:
        return f"{error.message} ({error.hint})"
    except NotFound:
        pass
    return ""


def owners(home: Path | None = None) -> frozenset[int]:
    """The users whose files are trusted: this process's own, root, whoever / belongs to (in a user namespace), and a home's."""
    found = {os.geteuid(), 0, os.stat("/").st_uid}
    try:
        return frozenset(found if home is None else {*found, home.stat().st_uid})
    except OSError:
        return frozenset(found)


def _walk_path(path: Path, trusted: frozenset[int]) -> int:
    """A descriptor of what a path leads to, when every component is trusted."""
    links, is_private = 0, False
    names, shown = [*reversed(path.absolute().parts[1:])], "/"
    handle = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        is_private = _judge_part(os.fstat(handle), shown, trusted, is_private)
        while names:
            name = names.pop()
            below = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
            info = os.fstat(below)
            if stat.S_ISLNK(info.st_mode):
                links += 1
                target = os.readlink("", dir_fd=below)
                os.close(below)
                if info.st_uid not in trusted:
                    raise _foreign_owner(f"{shown.rstrip('/')}/{name}", info.st_uid)
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                whole = Path(os.path.normpath(os.path.join(shown, target)))
                names += [*reversed(whole.parts[1:])]
                os.close(handle)
                handle, shown, is_private = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), "/", False
                continue
            os.close(handle)
            handle, shown = below, f"{shown.rstrip('/')}/{name}"
            is_private = _judge_part(info, shown, trusted, is_private)
        return handle
    except OSError as error:
        os.close(handle)
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise NotFound(f"{path} is not there") from None
        raise Refused(f"{path} cannot be looked at: {error.strerror}", hint=f"ls -ld {path}") from None
    except Refused:
        os.close(handle)
        raise


def _judge_part(info: os.stat_result, shown: str, trusted: frozenset[int], is_private: bool, *, has_sticky: bool = True) -> bool:
    """Whether others cannot get below this component; Refused when they could have written it."""
    if info.st_uid not in trusted:
        raise _foreign_owner(shown, info.st_uid)
    is_folder = stat.S_ISDIR(info.st_mode)
    is_sticky = has_sticky and is_folder and info.st_mode & stat.S_ISVTX
    if not is_private and info.st_mode & OTHERS_WRITE and not is_sticky:
        raise Refused(f"{shown} can be written to by others (mode {stat.S_IMODE(info.st_mode):o})", hint=f"chmod go-w {shown}")
    return is_private or (is_folder and not info.st_mode & OTHERS_ENTER)


def _require_tree(handle: int, path: Path, trusted: frozenset[int]) -> None:
    """Everything below a folder that is open; a single file is judged already."""
    if not stat.S_ISDIR(os.fstat(handle).st_mode):
        return
    for folder, names, files, at in os.fwalk(".", dir_fd=handle, follow_symlinks=False):
        here = os.path.normpath(os.path.join(path, folder))
        _judge_part(os.fstat(at), here, trusted, False, has_sticky=False)
        for name in (*names, *files):
            info, shown = os.stat(name, dir_fd=at, follow_symlinks=False), os.path.join(here, name)
            if stat.S_ISLNK(info.st_mode):
                raise Refused(f"{shown} is a link", hint="put the file itself there")
            _judge_part(info, shown, trusted, False, has_sticky=False)


def _foreign_owner(shown: str, uid: int) -> Refused:
    return Refused(f"{shown} belongs to user {uid}", hint=f"only user {os.geteuid()} and root may own it: chown it, or remove it")
