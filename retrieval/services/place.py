"""Where a home's embedded servers keep their files, and the account they run as.

In: the home folder. Out: a `Place` with private folders, and programs that its account can run.

As a normal user everything lies in `<home>/services`. PostgreSQL refuses to run as root, so for
root the servers run as `nobody`, who must be able to reach their files. Where the way to them is
closed (a home below /root), they move to SYSTEM_FOLDER, and `<home>/services` becomes a link to
them; the permissions of folders that are not ours are never touched.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from retrieval.errors import ServiceUnavailable

OWN_ACCOUNT = "vcl"
SYSTEM_FOLDER = Path("/var/lib/vcl")
LONGEST_SOCKET = ".s.PGSQL.5432.lock"
WORKERS = "workers.lock"  # shared by all that keep the servers of a home running
SOCKET_PATH_BYTES = 100  # the kernel takes 107 on Linux, 103 on macOS


@dataclass(frozen=True)
class Account:
    """Whom the servers run as when the caller is root."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Place:
    """The folders of one home's servers; `account` is None where that is the caller's own."""

    folder: Path
    account: Account | None

    @property
    def sockets(self) -> Path:
        """The folder of the sockets; a link's target is used, for it is the shorter name."""
        run = self.folder / "run"
        return Path(os.readlink(run)) if run.is_symlink() else run

    def popen_arguments(self) -> dict[str, Any]:
        """How a child process becomes a server's: its account, folder and a bare environment.

        PGPORT, PGOPTIONS and the like in the caller's environment would change the server.
        """
        arguments: dict[str, Any] = {
            "cwd": self.folder,
            "env": {"PATH": os.defpath, "LC_ALL": "C"},
        }
        return arguments | _become(self.account)


@contextmanager
def lock_home(home: Path, timeout: float) -> Iterator[None]:
    """Only one process at a time starts or stops the servers of a home."""
    lock = _open_lock(home, "services.lock")
    deadline = time.monotonic() + timeout
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ServiceUnavailable(
                        f"another process has been starting or stopping the services of {home} "
                        f"for {timeout:g} s; look for it with `fuser {home}/services.lock`"
                    ) from None
                time.sleep(0.05)
        yield
    finally:
        # Unlocked by name, not by closing: a child forked meanwhile holds a copy of `lock`.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def join_home(home: Path) -> None:
    """Until this process ends, `has_workers` is true of the home; the kernel sees to that."""
    fcntl.flock(_open_lock(home, WORKERS), fcntl.LOCK_SH)


def has_workers(home: Path) -> bool:
    """Whether a process that joined the home is alive; the caller holds `lock_home`."""
    lock = _open_lock(home, WORKERS)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _open_lock(home: Path, name: str) -> int:
    try:
        # Root leaves the way through the home open (and only that) for the servers' account.
        home.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        return open_owned(home / name, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise _not_usable(home, error.strerror or str(error)) from error


def open_owned(path: Path, flags: int) -> int:
    """Open a private file; one that root creates belongs to the owner of its folder."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    return descriptor


def find_place(home: Path) -> Place | None:
    """The place as it stands, changing nothing; None before the first start."""
    folder = home / "services"
    if home.is_dir() and not os.access(home, os.X_OK):
        raise _not_usable(home, "permission denied")
    if folder.is_symlink():
        folder = Path(os.readlink(folder))
        if not folder.is_dir():
            raise ServiceUnavailable(
                f"{home}/services points to {folder}, which is gone; bring that folder back, "
                f"or remove the link to begin with an empty database"
            )
    if not folder.is_dir():
        return None
    owner = folder.stat()
    if os.geteuid() == 0:
        is_given = owner.st_uid != 0
        return Place(
            folder, Account(owner.st_uid, owner.st_gid) if is_given else _account_of_servers()
        )
    if owner.st_uid != os.geteuid():
        raise ServiceUnavailable(
            f"the services in {folder} belong to user {owner.st_uid}, this is user "
            f"{os.geteuid()}; run as that user or set VCL_HOME to a folder of your own"
        )
    return Place(folder, None)


def open_place(home: Path) -> Place:
    """The place with all its folders made; the caller holds `lock_home`."""
    if find_place(home) is None:
        account = _account_of_servers() if os.geteuid() == 0 else None
        if _can_enter(account, home):
            (home / "services").mkdir(mode=0o700)
        else:
            _make_open(SYSTEM_FOLDER)
            _system_folder(home).mkdir(mode=0o700)
            (home / "services").symlink_to(_system_folder(home))
    place = find_place(home)
    assert place is not None
    _give(place.folder, place.account)
    run = place.folder / "run"
    if not run.is_symlink() and not run.exists():
        if _is_short(run):
            run.mkdir(mode=0o700)
        else:
            run.symlink_to(_short_folder(home))
    make_private(place.sockets, place.account)
    return place


def make_private(folder: Path, account: Account | None) -> None:
    """Make the folder, or accept it only as ours: anyone may create names in a temp folder."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    owners = {os.geteuid()} if account is None else {0, account.uid}
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in owners or found.st_mode & 0o077:
        raise ServiceUnavailable(
            f"the folder {folder} is not a private folder of user {max(owners)} "
            f"(owner {found.st_uid}, mode {found.st_mode & 0o777:o}); remove it and start again"
        )
    _give(folder, account)


def set_aside_abandoned(home: Path) -> Place | None:
    """Where the home was deleted but not its system folder: that folder, under a new name.

    The home begins empty again, as it does for a normal user; what the old one held is kept.
    """
    old = _system_folder(home)
    if os.geteuid() != 0 or find_place(home) is not None or not old.exists():
        return None
    kept = old.rename(f"{old}.before-{time.time_ns()}")
    owner = kept.stat()
    return Place(kept, Account(owner.st_uid, owner.st_gid))


def find_package(package: str) -> Path | None:
    """The folder of an installed package, without importing it."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def reachable_programs(package: Path, folder: str, account: Account | None) -> Path:
    """`package/folder`, or a copy of it where its account cannot reach the installed one.

    Root may have its environment below /root, where `nobody` can run nothing.
    """
    if _can_enter(account, package / folder):
        return package / folder
    made = (package / folder).stat().st_mtime_ns
    key = hashlib.sha256(f"{package}:{made}".encode()).hexdigest()[:12]
    copy = SYSTEM_FOLDER / f"programs-{key}"
    if not copy.exists():
        _make_open(SYSTEM_FOLDER)
        unfinished = Path(tempfile.mkdtemp(dir=SYSTEM_FOLDER))
        shutil.copytree(package / folder, unfinished / package.name / folder, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")  # found relative to the programs
        if libraries.is_dir():
            shutil.copytree(libraries, unfinished / libraries.name, symlinks=True)
        _open_for_reading(unfinished)
        try:
            unfinished.rename(copy)
        except OSError:  # another home was quicker
            shutil.rmtree(unfinished)
    return copy / package.name / folder


def _not_usable(home: Path, reason: str) -> ServiceUnavailable:
    return ServiceUnavailable(
        f"the home folder {home} cannot be used ({reason}); "
        "make it writable for this user or set VCL_HOME to another folder"
    )


def _account_of_servers() -> Account:
    """Of root's: their own where the system has it, for `nobody` may be many programs."""
    for name in (OWN_ACCOUNT, "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            if entry.pw_uid != 0:
                return Account(entry.pw_uid, entry.pw_gid)
    raise ServiceUnavailable(
        f"PostgreSQL does not run as root and this system has neither a user `{OWN_ACCOUNT}` nor "
        "`nobody`; run as a normal user or set VCL_DATABASE_URL and VCL_BROKER_URL"
    )


def _become(account: Account | None) -> dict[str, Any]:
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def _can_enter(account: Account | None, folder: Path) -> bool:
    """Asked of the kernel as that account, since mode bits know nothing of ACLs and mounts."""
    if account is None:
        return os.access(folder, os.X_OK)
    command = ["/bin/sh", "-c", 'cd "$1" 2>/dev/null', "sh", str(folder)]
    return subprocess.run(command, cwd="/", env={}, **_become(account)).returncode == 0


def _system_folder(home: Path) -> Path:
    return SYSTEM_FOLDER / hashlib.sha256(os.fsencode(home)).hexdigest()[:12]


def _is_short(folder: Path) -> bool:
    """Whether sockets fit in; other characters would need three kinds of quoting in the URLs."""
    name = str(folder / LONGEST_SOCKET)
    return len(name) < SOCKET_PATH_BYTES and re.fullmatch(r"[A-Za-z0-9_./-]+", name) is not None


def _short_folder(home: Path) -> Path:
    name = f"vcl-{hashlib.sha256(os.fsencode(home)).hexdigest()[:12]}"
    folder = Path(tempfile.gettempdir()).resolve() / name
    # Whoever made it before us: `make_private` takes it only as a private folder of our own.
    return folder if _is_short(folder) else Path("/tmp") / name  # nosec B108


def _give(folder: Path, account: Account | None) -> None:
    if account is not None:
        os.chown(folder, account.uid, account.gid, follow_symlinks=False)


def _make_open(folder: Path) -> None:
    if not folder.exists():
        folder.mkdir(parents=True)
        folder.chmod(0o755)  # whatever the umask: others must be able to pass


def _open_for_reading(root: Path) -> None:
    """What a strict umask closed at installation is opened in the copy."""
    for path in [root, *root.rglob("*")]:
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o555 if path.is_dir() or mode & 0o100 else 0o444))
