"""Every setting, its default, and where its value came from. The only reader of VCL_* variables.

In: the environment. Out: a frozen `Settings`.
Called once per process by the edges (command line, tasks, tests); pure code takes plain arguments.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from retrieval.errors import BadSetting

_ADDRESSES = {
    "database_url": (r"postgres(ql)?(\+\w+)?://", "postgresql://user:password@host/name"),
    "broker_url": (r"(rediss?|redis\+socket)://", "redis://:password@host:6379/0"),
}
# Parts of an address that may be shown; of any other, only the name is.
_HARMLESS = (
    "host|hostaddr|port|user|dbname|db|sslmode|sslrootcert|connect_timeout|application_name|"
    "target_session_attrs|virtual_host|ssl_cert_reqs|ssl_ca_certs|ssl_check_hostname"
)


def _setting(
    default: Any, meaning: str, low: float | None = None, high: float | None = None
) -> Any:
    return field(default=default, metadata={"meaning": meaning, "low": low, "high": high})


@dataclass(frozen=True)
class Settings:
    """One field a variable: `top_k` is read from VCL_TOP_K."""

    home: Path = _setting(
        Path("~/.vcl"), "folder of the embedded services, the store and the index"
    )
    database_url: str = _setting("", "PostgreSQL to use instead of the embedded one")
    broker_url: str = _setting("", "Redis or Valkey to use instead of the embedded one")
    media_roots: str = _setting(
        "", f"folders that all given paths must lie in, separated by {os.pathsep!r}; empty: any"
    )
    device: str = _setting("auto", "auto, cpu, cuda or cuda:N")
    descriptor: str = _setting("lite0", "frame descriptor")
    pooler: str = _setting("mean", "how descriptors become index vectors")
    localizer: str = _setting("transvcl", "method that finds the segments of a pair")
    weights: str = _setting(
        "", "weights file of the localizer; empty means the one shipped with it"
    )
    top_k: int = _setting(20, "candidate references compared per query", 1, 10_000)
    min_candidate_score: float = _setting(0.0, "candidates below this score are left out", -1, 1)
    index_dir: Path = _setting(
        Path("index"), "folder of the index's files, local to each machine; may be below the home"
    )
    index_url: str = _setting("", "Milvus to search in instead of FAISS files under the home")
    index_fast_from: int = _setting(
        100_000, "vectors from which a snapshot of the index is trained, not flat", 1000
    )
    index_delta_share: float = _setting(
        0.02, "changes since the last snapshot, as a share of it, that make a new one due", 0.001, 1
    )
    rescan_new: bool = _setting(False, "search old uploads for every new reference")
    decode_timeout: float = _setting(600.0, "seconds after which decoding one video is given up", 1)
    require_confinement: bool = _setting(
        False, "refuse to decode where the kernel cannot confine the decoder (see `vcl doctor`)"
    )
    file_mode: str = _setting(
        "640", "who may read new files of the store and the index, as in `chmod`: 600, 640, 644"
    )
    max_frames: int = _setting(36_000, "most frames of one video (10 hours at one a second)", 1)
    batch_frames: int = _setting(20_000, "reference frames localized in one batch", 1)
    lease_seconds: float = _setting(
        60.0, "how long a worker may hold a pair without a sign of life", 1
    )
    max_attempts: int = _setting(3, "tries before a pair is quarantined", 1, 100)
    sweep_seconds: float = _setting(10.0, "pause between two sweeps for lost work", 0.5)
    stall_seconds: float = _setting(
        180.0, "a worker that takes no waiting message for so long is started anew", 1
    )
    task_seconds: float = _setting(
        7200.0, "a process at work on one task for so long is taken for hung and killed", 1
    )
    auth: str = _setting("keys", "who may use `vcl serve`: keys, or proxy (a trusted header)")
    auth_header: str = _setting("X-Forwarded-User", "header in which a proxy names the user")
    trusted_proxies: str = _setting(
        "127.0.0.1,::1", "addresses or networks of proxies that are believed, by commas"
    )
    max_upload_bytes: int = _setting(20 * 2**30, "most bytes of a video that is uploaded", 1)
    requests_per_second: float = _setting(
        200.0, "most requests a second of one key or address, on average", 1
    )
    webhook_private: bool = _setting(False, "send webhooks to private addresses, too")
    service_timeout: float = _setting(60.0, "seconds to wait for PostgreSQL and the broker", 1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "home", Path(self.home).expanduser().absolute())
        object.__setattr__(self, "index_dir", self.home / Path(self.index_dir).expanduser())
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise BadSetting(f"VCL_DEVICE is {self.device!r}; use auto, cpu, cuda or cuda:N")
        if not re.fullmatch(r"0?6[046][04]", self.file_mode):
            raise BadSetting(
                f"VCL_FILE_MODE is {self.file_mode!r}; use 600 for the owner, 640 for the group or "
                "644 for everybody"
            )
        if self.auth not in ("keys", "proxy"):
            raise BadSetting(f"VCL_AUTH is {self.auth!r}; use keys or proxy")
        object.__setattr__(self, "broker_url", _require_certificate(self.broker_url))
        for name, (pattern, example) in _ADDRESSES.items():
            url = getattr(self, name)
            if url and not re.match(pattern, url):
                # Without its value: what cannot be taken apart may be a password as a whole.
                raise BadSetting(f"{variable(name)} is no address that we know; use {example}")
        for root in self.roots:
            if not root.is_absolute():
                raise BadSetting(
                    f"VCL_MEDIA_ROOTS names {str(root)!r}; workers have folders of their own, so "
                    "each root must be an absolute path"
                )
        for each in fields(self):
            low, high = each.metadata["low"], each.metadata["high"]
            value = getattr(self, each.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise BadSetting(f"{variable(each.name)} is {value}; it must be a finite number")
            if (low is not None and value < low) or (high is not None and value > high):
                limits = f"at least {low:g}" if high is None else f"between {low:g} and {high:g}"
                raise BadSetting(f"{variable(each.name)} is {value}; it must be {limits}")

    @property
    def roots(self) -> tuple[Path, ...]:
        """The media roots; none means that paths are not confined.

        What is uploaded over HTTP lies in a folder of our own, which is always one of them.
        """
        names = (each.strip() for each in self.media_roots.split(os.pathsep))
        roots = tuple(Path(name) for name in names if name)
        return (*roots, self.upload_dir) if roots else ()

    @property
    def mode(self) -> int:
        """The permissions of a file."""
        return int(self.file_mode, 8)

    @property
    def store_dir(self) -> Path:
        return self.home / "store"

    @property
    def upload_dir(self) -> Path:
        return self.home / "uploads"

    @property
    def preview_dir(self) -> Path:
        """What browsers are shown of videos; made again whenever it is missing."""
        return self.home / "previews"

    @property
    def log_dir(self) -> Path:
        return self.home / "logs"


def variable(name: str) -> str:
    return f"VCL_{name.upper()}"


def load_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Defaults, overlaid by VCL_* variables; a variable nobody knows is an error, not a silence."""
    environment = os.environ if environment is None else environment
    known = {variable(each.name): each for each in fields(Settings)}
    values: dict[str, Any] = {}
    for key, text in environment.items():
        if not key.startswith("VCL_"):
            continue
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(known))}"
            raise BadSetting(f"{key} is not a setting; {hint}")
        if text == "":
            continue
        values[known[key].name] = _parse(key, text, known[key].default)
    return Settings(**values)


def describe_settings(settings: Settings) -> list[dict[str, Any]]:
    """One row a field, for `vcl config`; passwords in URLs are masked."""
    return [
        {
            "setting": each.name,
            "value": mask_password(str(getattr(settings, each.name))),
            "source": variable(each.name) if os.environ.get(variable(each.name)) else "default",
            "meaning": each.metadata["meaning"],
        }
        for each in fields(settings)
    ]


def mask_password(url: str) -> str:
    """The URL as it may be shown.

    >>> mask_password("postgresql://ana:secret@db/vcl")
    'postgresql://ana:***@db/vcl'
    """
    # By pattern, not by parsing: what a parser refuses would be shown with its password.
    masked = re.sub(r"(?s)(://[^:@/?#]*):.*@", r"\1:***@", url)
    return re.sub(rf"([?&](?!(?:{_HARMLESS})=)[^=&]*=)[^&]*", r"\1***", masked)


def _require_certificate(url: str) -> str:
    """A broker's address under which its certificate is checked, unless it says otherwise.

    Without a word about it, Celery's transport would take any.

    >>> _require_certificate("rediss://broker:6380/0")
    'rediss://broker:6380/0?ssl_cert_reqs=required'
    """
    if url.startswith("sentinel://"):
        raise BadSetting(
            "VCL_BROKER_URL names a sentinel, which is not supported; give the address of the "
            "master, or of a proxy that follows it: redis://:password@host:6379/0"
        )
    if not url.startswith("rediss://") or "ssl_cert_reqs=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}ssl_cert_reqs=required"


def _parse(key: str, text: str, default: Any) -> Any:
    kind = type(default)
    if isinstance(default, Path) or kind is str:
        return Path(text) if isinstance(default, Path) else text
    if kind is bool:
        if text.lower() not in ("0", "1", "false", "true", "no", "yes"):
            raise BadSetting(f"{key} is {text!r}; it must be yes or no")
        return text.lower() in ("1", "true", "yes")
    try:
        return kind(text)
    except ValueError:
        expected = {"int": "a whole number", "float": "a number"}[kind.__name__]
        raise BadSetting(f"{key} is {text!r}; it must be {expected}") from None
