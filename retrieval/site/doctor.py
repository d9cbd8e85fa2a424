"""The doctor: looks at an installation part by part, and says of each whether it is well.

In: settings. Out: findings, each ok or with a sentence of what to do.
It starts nothing and changes nothing.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from celery import Celery
from kombu.exceptions import KombuError
from redis.exceptions import RedisError
from sqlalchemy import Engine

from retrieval.database import (
    OLDEST_POSTGRES,
    check_schema,
    connect,
    current_revision,
    transaction,
)
from retrieval.describe.descriptors import load_descriptor
from retrieval.describe.sessions import knows_cuda
from retrieval.errors import BadSetting, RetrievalError
from retrieval.identity import StoreIdentity
from retrieval.index.snapshots import saved_indexes
from retrieval.media.child import missing_nets
from retrieval.plugins import load_localizer, load_pooler
from retrieval.services import ServiceStatus, service_status
from retrieval.settings import Settings, mask_password, variable
from retrieval.work import leases, outdated
from retrieval.work.messages import Queue

OLDEST_PYTHON = (3, 11)
LEAST_DISK = 2 * 1024**3  # a day of video is described in a fraction of it; servers need the rest
# Packages for a processor and for a card, of which an installation has one: both own the module.
TWINS = {
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu"),
    "faiss": ("faiss-cpu", "faiss-gpu"),
}
PATIENCE = 2.0  # seconds in which an idle worker answers


@dataclass(frozen=True)
class Finding:
    """One part as it was found; `advice` is empty when it is well."""

    part: str
    found: str
    advice: str = ""

    @property
    def is_well(self) -> bool:
        return not self.advice


def examine(settings: Settings) -> Iterator[Finding]:
    """Every part, the quick ones first."""
    yield _check_python()
    yield _check_packages()
    yield _check_home(settings)
    yield _check_disk(settings)
    if settings.roots:
        yield _check_roots(settings)
    database, broker = service_status(settings)
    yield _check_service(database, "PostgreSQL", "VCL_DATABASE_URL")
    if database.running:
        schema = _check_schema(connect(settings.database_url or database.where))
        yield schema
        if schema.is_well:
            yield _check_store(settings, connect(settings.database_url or database.where))
    yield _check_service(broker, "the broker", "VCL_BROKER_URL")
    if broker.running:
        engine = connect(settings.database_url or database.where) if database.running else None
        yield _check_workers(settings.broker_url or broker.where, engine)
    yield _check_index(settings)
    yield _check_device(settings)
    yield _check_confinement()
    yield _check_plugin("descriptor", settings.descriptor, load_descriptor)
    key = _descriptor_key(settings)
    if database.running and key:
        yield from _check_references(key, connect(settings.database_url or database.where))
    yield _check_plugin("pooler", settings.pooler, load_pooler, key)
    weights = settings.weights or None
    yield _check_plugin(
        "localizer", settings.localizer, lambda name: load_localizer(name, weights=weights), key
    )


def _check_python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    wanted = ".".join(map(str, OLDEST_PYTHON))
    is_old = sys.version_info[:2] < OLDEST_PYTHON
    return Finding("python", found, f"install Python {wanted} or later" if is_old else "")


def _check_packages() -> Finding:
    """The heavy ones, by importing them: a wheel of another platform is found only so."""
    found = []
    for module in ("torch", "av", *TWINS):
        try:
            importlib.import_module(module)
        except ImportError as error:
            return Finding(
                "packages",
                f"{module} cannot be imported ({error})",
                "run `pip install -c constraints.txt '.[cpu,embedded]'`, or `.[gpu,embedded]`",
            )
        if module not in TWINS:
            found.append(f"{module} {version(module)}")
    for module, twins in TWINS.items():
        here = [each for each in twins if _is_installed(each)]
        if len(here) != 1:
            both = f"{' and '.join(here)} are both here" if here else f"there is no {module}"
            what = "uninstall both, then install" if here else "install"
            advice = f"{what} `.[cpu]` or `.[gpu]`; either owns the package `{module}` alone"
            return Finding("packages", both, advice)
        found.append(f"{here[0]} {version(here[0])}")
    return Finding("packages", ", ".join(found))


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def _check_home(settings: Settings) -> Finding:
    home = settings.home
    parent = next(each for each in (home, *home.parents) if each.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        return Finding("home", f"{parent} cannot be written to", "set VCL_HOME to another folder")
    return Finding("home", str(home) if home.exists() else f"{home} (not made yet)")


def _check_disk(settings: Settings) -> Finding:
    home = settings.home
    disk = shutil.disk_usage(next(each for each in (home, *home.parents) if each.exists()))
    found = f"{disk.free / 1024**3:.1f} GB free of {disk.total / 1024**3:.1f}"
    is_full = disk.free < LEAST_DISK
    advice = "make room, or set VCL_HOME to a folder on a larger disk" if is_full else ""
    return Finding("disk", found, advice)


def _check_roots(settings: Settings) -> Finding:
    unreadable = [str(root) for root in settings.roots if not os.access(root, os.R_OK | os.X_OK)]
    if unreadable:
        return Finding(
            "media roots",
            f"{', '.join(unreadable)} cannot be read",
            "mount or make the folder, or correct VCL_MEDIA_ROOTS",
        )
    return Finding("media roots", ", ".join(map(str, settings.roots)))


def _check_service(service: ServiceStatus, name: str, setting: str) -> Finding:
    if not service.running:
        advice = (
            "start it with `vcl up`"
            if service.kind == "embedded"
            else f"start it, or correct {setting}"
        )
        return Finding(service.name, f"{name} at {service.where} does not answer", advice)
    found = f"{service.version}, {service.kind}, {service.where}"
    major = re.search(r"PostgreSQL (\d+)", service.version)
    if major is not None and int(major[1]) < OLDEST_POSTGRES:
        return Finding(service.name, found, f"use PostgreSQL {OLDEST_POSTGRES} or later")
    return Finding(service.name, found)


def _check_schema(database: Engine) -> Finding:
    try:
        check_schema(database)
    except RetrievalError as error:
        return _ill("schema", error)
    return Finding("schema", f"revision {current_revision(database)}")


def _check_store(settings: Settings, database: Engine) -> Finding:
    try:
        return Finding("store", StoreIdentity(database, settings.store_dir).inspect())
    except RetrievalError as error:
        return _ill("store", error)


def _check_workers(broker_url: str, database: Engine | None) -> Finding:
    """Who answers and which queues they serve. A worker on a GPU answers only between two pieces of
    work, so one that holds a lease counts as well."""
    # An app of its own: the configuration of ours would start servers that are not running.
    with Celery("doctor", broker=broker_url) as app:
        try:
            answers = app.control.inspect(timeout=PATIENCE).active_queues() or {}
        except (KombuError, RedisError, OSError) as error:
            return Finding("workers", f"not asked ({error})", "see what the broker's log says")
    served = {queue["name"] for queues in answers.values() for queue in queues}
    holders = _list_holders(database) if database is not None else []
    if not answers and holders:
        return Finding("workers", f"busy: {', '.join(holders)}")
    if not answers:
        return Finding("workers", "none answers", "start one with `vcl worker`")
    orphaned = [queue for queue in Queue if queue not in served]
    if orphaned and not holders:
        return Finding(
            "workers",
            f"{', '.join(sorted(answers))}; none serves {', '.join(orphaned)}",
            f"start one with `vcl worker --queues {','.join(orphaned)}`",
        )
    return Finding("workers", ", ".join(sorted(answers)))


def _list_holders(database: Engine) -> list[str]:
    """Processes (host:pid) that hold work and have shown a sign of life in time."""
    try:
        with transaction(database) as connection:
            return leases.list_holders(connection)
    except RetrievalError:
        return []


def _check_index(settings: Settings) -> Finding:
    if settings.index_url:
        return _check_milvus(settings.index_url)
    saved = saved_indexes(settings.index_dir)
    if not saved:
        return Finding("index", "none saved; a starting worker replays the log of changes")
    return Finding("index", "; ".join(f"{each.key}, {each.videos} videos" for each in saved))


def _check_milvus(url: str) -> Finding:
    where = mask_password(url)
    try:
        from pymilvus import MilvusClient, MilvusException

        from retrieval.index.milvus import connection_of
    except ImportError:
        advice = "install `.[milvus]`, or leave VCL_INDEX_URL empty"
        return Finding("index", f"pymilvus is missing, and the index is at {where}", advice)
    try:
        client = MilvusClient(**connection_of(url), timeout=PATIENCE)
        version = client.get_server_version()
        client.close()
    except BadSetting as error:
        return _ill("index", error)
    except MilvusException as error:
        found = f"Milvus at {where} does not answer ({error.message})"
        return Finding("index", found, "start it, or correct VCL_INDEX_URL")
    return Finding("index", f"Milvus {version}, {where}")


def _check_device(settings: Settings) -> Finding:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = ", ".join(torch.cuda.get_device_name(each) for each in range(count))
    wanted = settings.device
    if wanted.startswith("cuda") and int(wanted.partition(":")[2] or 0) >= count:
        return Finding(
            "device",
            f"VCL_DEVICE is {wanted}, and torch sees {names or 'no CUDA device'}",
            "install the driver and `.[gpu]`, or set VCL_DEVICE to auto",
        )
    is_used = count and wanted != "cpu"
    if is_used and not knows_cuda():
        return Finding(
            "device",
            f"{names}, but ONNX Runtime knows no CUDA, so videos are described by the CPU",
            "install `.[gpu]` instead of `.[cpu]`, or set VCL_DEVICE to cpu",
        )
    return Finding("device", names if is_used else f"the CPU, {os.cpu_count()} cores")


def _check_confinement() -> Finding:
    missing = missing_nets()
    if not missing:
        return Finding("confinement", "decoders of videos are confined")
    return Finding(
        "confinement",
        f"decoders of videos are not confined by {missing}",
        "use a kernel with Landlock (Linux 5.13) and seccomp, and a container that allows them; "
        "VCL_REQUIRE_CONFINEMENT=yes refuses to decode without",
    )


def _check_plugin(
    part: str, name: str, load: Callable[[str], object], described_by: str = ""
) -> Finding:
    """By loading it: its weights are there, whole, and of the right network.

    `described_by`: the descriptor whose numbers it is given; it may have learnt from another's.
    """
    try:
        loaded = load(name)
    except RetrievalError as error:
        return _ill(part, error)
    except Exception as error:  # a plugin of somebody else's may fail in any way
        said = f"{type(error).__name__}: {error}"
        return Finding(part, f"{name} cannot be loaded ({said})", f"correct {variable(part)}")
    found = f"{name}, {getattr(loaded, 'fingerprint', 'no fingerprint')}"
    learnt = getattr(loaded, "descriptor", None)
    if learnt and described_by and learnt != described_by:
        return Finding(
            part,
            f"{found} learnt from {learnt}, but videos are described by {described_by}",
            _LEARN_AGAIN.get(part, f"correct {variable(part)}"),
        )
    return Finding(part, found)


_LEARN_AGAIN = {
    "localizer": "set VCL_WEIGHTS to weights that learnt from it, or teach them (`vcl lines`)",
    "pooler": "set VCL_POOLER to mean, which learnt from nothing",
}


def _descriptor_key(settings: Settings) -> str:
    """Empty if there is none: the finding about the descriptor says so."""
    try:
        return load_descriptor(settings.descriptor).fingerprint.key
    except Exception:
        return ""


def _check_references(key: str, database: Engine) -> Iterator[Finding]:
    """Whether searches see all references. What hinders the question is another part's finding."""
    try:
        check_schema(database)
        with transaction(database) as connection:
            unseen = outdated.count_references(connection, key)
    except Exception:
        return
    if unseen:
        yield Finding(
            "references",
            f"searches do not see {unseen}, which have no descriptors of {key}",
            "run `vcl ingest --redescribe`",
        )
    else:
        yield Finding("references", f"all that have a file are described by {key}")


def _ill(part: str, error: RetrievalError) -> Finding:
    """Our errors end with what to do; where one does not, the whole sentence is the advice."""
    found, separator, advice = str(error).partition("; ")
    return Finding(part, found, advice if separator else f"see `vcl config` ({error.code})")
