"""Files and folders as the system speaks of them: whose fault an error is, and names that last.

In: an error and the path it came from; a folder. Out: the error in our words; a folder that is
there after a power cut.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from retrieval.errors import (
    BadDescriptors,
    MissingFile,
    RetrievalError,
    ServiceUnavailable,
    Unreadable,
)

# The process has too little of something, or a disk on the network is away: no fault of the file.
AWAY = (
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ESTALE, errno.ENOTCONN),
    *(errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EREMOTEIO),
)
GONE = (errno.ENOENT, errno.ENOTDIR)
# Some file systems cannot make a folder's entries last by themselves; they need no telling.
NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)


def read_failure(error: Exception, path: Path) -> RetrievalError:
    """Why a file was not read: only its content makes it hopeless."""
    number = _error_number(error, path)
    reason = _first_line(error) if number is None else os.strerror(number)
    if number in GONE:
        return missing_file(path)
    if number in AWAY:
        return ServiceUnavailable(
            f"{path} cannot be read now ({reason}); work that waits for it goes on by itself"
        )
    if number is not None or isinstance(error, MemoryError):
        return Unreadable(f"{path} cannot be read ({reason}); check its permissions and its disk")
    # Any bytes may stand there, and a parser may say anything to them (numpy's alone knows
    # six ways): the file is the reason, and its maker's to mend.
    return BadDescriptors(
        f"{path} is no descriptor file ({reason}); write it again", code="not_an_array"
    )


def missing_file(path: Path) -> MissingFile:
    return MissingFile(f"no descriptor file at {path}; ingest or register the video again")


def _error_number(error: Exception, path: Path) -> int | None:
    """The number that the system gave the error.

    safetensors says "no such file" without a number, whatever kept it from opening one: the file
    is opened once more to learn it.
    """
    if not isinstance(error, OSError):
        return None
    if isinstance(error, FileNotFoundError) and error.errno is None:
        try:
            path.open("rb").close()
        except OSError as real:
            return real.errno
        return errno.EAGAIN  # it is over already
    return error.errno


def make_folder(folder: Path, within: Path | None, mode: int | None = None) -> None:
    """Make a folder for files of that mode; not `within` itself, which must be there."""
    if folder.is_dir():
        return
    if folder == within:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
    make_folder(folder.parent, within, mode)
    folder.mkdir(exist_ok=True)
    if mode is not None:
        open_folder(folder, mode)
    sync_folder(folder.parent)


def open_folder(folder: Path, mode: int) -> None:
    """Let those pass who may read files of that mode, whatever the umask."""
    kept = folder.stat().st_mode & stat.S_ISGID  # its files belong to its group
    folder.chmod(kept | mode | (mode & 0o444) >> 2)


def sync_folder(folder: Path) -> None:
    """Make its new entries last: a file can be safe on the disk and its name be lost."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in NO_FOLDER_SYNC:
            raise
    finally:
        os.close(handle)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
