"""The journal of a worker: one line a record, key=value, with the ids of the work in hand.

In: log records of any logger. Out: lines that `grep` finds by search, pair, query or video.
Connected to Celery's signals where celeryconfig.py imports it, in every worker process.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from celery.app.trace import LOG_RECEIVED, LOG_SUCCESS
from celery.signals import setup_logging, task_postrun, task_prerun

# Messages of the form `event key=value key=value`, which need no quoting. Printable ASCII only: an
# id of somebody else's may hold what moves a terminal's cursor.
_PLAIN = re.compile(r"[\w.-]+(?: \w+=[!-~]+)+", re.ASCII)
_UNQUOTED = re.compile(r"[!#-<>-~]+")
IDS = {
    "search_id": "search",
    "query_id": "query",
    "video_id": "video",
    "reference_id": "reference",
}
# Celery says of every task that it came and that it went; our own lines say what became of it.
CHATTER = frozenset({LOG_RECEIVED, LOG_SUCCESS})

_work: dict[str, str] = {}


class LineFormatter(logging.Formatter):
    """A record as one line; a traceback becomes its error and the places it came through."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        facts: dict[str, object] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
        }
        message = record.getMessage()
        rest = ""
        if _PLAIN.fullmatch(message):
            facts["event"], rest = message.split(" ", 1)
        else:
            facts |= {"event": record.name, "message": message}
        told = {each.partition("=")[0] for each in rest.split()}
        context = {key: value for key, value in _work.items() if key not in told}
        if record.exc_info and record.exc_info[1] is not None:
            context |= _describe_error(record.exc_info[1])
        line = [_pair(key, value) for key, value in facts.items()]
        if rest:
            line.append(rest)
        line += [_pair(key, value) for key, value in context.items()]
        line.append(f"pid={record.process}")
        return " ".join(line)


@setup_logging.connect
def start(loglevel: int | str | None = None, **_: Any) -> None:
    """Write everything that this process logs as lines on stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    level = logging.INFO if loglevel is None else loglevel
    logging.basicConfig(level=level, handlers=[handler], force=True)
    if logging.getLogger().level > logging.DEBUG:
        handler.addFilter(is_news)
        logging.getLogger("alembic").setLevel(logging.WARNING)


def is_news(record: logging.LogRecord) -> bool:
    return record.msg not in CHATTER


@task_prerun.connect
def take_up(kwargs: dict[str, Any] | None = None, **_: Any) -> None:
    """From now on every line names the work of this task."""
    _work.clear()
    for argument, name in IDS.items():
        if kwargs and kwargs.get(argument) is not None:
            _work[name] = str(kwargs[argument])


@task_postrun.connect
def lay_down(**_: Any) -> None:
    _work.clear()


def _pair(key: str, value: object) -> str:
    word = str(value)
    return f"{key}={word if _UNQUOTED.fullmatch(word) else json.dumps(word)}"


def _describe_error(error: BaseException) -> dict[str, str]:
    frames = traceback.extract_tb(error.__traceback__)
    return {
        "error": f"{type(error).__name__}: {error}",
        "through": " ".join(f"{Path(each.filename).name}:{each.lineno}" for each in frames),
    }
