"""Every error this project raises on purpose.

    RetrievalError                 anything we can explain; carries a stable `code`
    ├── BadVideo                   a file that cannot become frames
    ├── BadDescriptors             an array that cannot be a video's descriptors
    ├── FingerprintMismatch        descriptors of two kinds were about to mix
    ├── MissingWeights             a weights file is absent, unreadable or of another network
    ├── UnknownPlugin              no localizer, pooler or descriptor of that name
    ├── BadSetting                 a VCL_* variable with a value it cannot have
    ├── ServiceUnavailable         PostgreSQL or the broker cannot be reached or started
    ├── SchemaOutdated             the database lacks a migration
    │   └── SchemaIncomplete       a table is missing that may be there at the next look
    ├── NotFound                   an id, a name or a path that does not exist
    └── Refused                    a request that is understood and may not be done
        └── Moved                  what it is about is in another state than it needs

An error's text says what happened, with which value, and what to do about it. Its `code` is the
stable word that tables and JSON carry; the text may be reworded, the code may not.
"""

from __future__ import annotations


class RetrievalError(Exception):
    """Base of the tree. `code` is stable, `str(error)` is a sentence for a person."""

    code = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class BadVideo(RetrievalError):
    """Codes: missing, is_directory, unreadable, empty, not_video, no_video_stream, truncated,
    no_frames, too_slow, too_large, too_long, decoder_died, changed, outside_media_roots."""

    code = "not_video"


class BadDescriptors(RetrievalError):
    """Codes: wrong_dimension, not_finite, no_frames, not_an_array, unreadable, too_long,
    outside_media_roots."""

    code = "bad_descriptors"


class FingerprintMismatch(RetrievalError):
    code = "fingerprint_mismatch"


class MissingWeights(RetrievalError):
    code = "missing_weights"


class UnknownPlugin(RetrievalError):
    code = "unknown_plugin"


class BadSetting(RetrievalError):
    code = "bad_setting"


class ServiceUnavailable(RetrievalError):
    code = "service_unavailable"


class SchemaOutdated(RetrievalError):
    code = "schema_outdated"


class SchemaIncomplete(SchemaOutdated):
    """A statement found no such table or column, which may be there at the next look."""


class NotFound(RetrievalError):
    code = "not_found"


class MissingFile(NotFound):
    """A file that should be there; a later look may find it."""


class Unreadable(RetrievalError):
    """A file that this process cannot read, whatever it holds."""

    code = "unreadable"


class Refused(RetrievalError):
    code = "refused"


class Moved(Refused):
    """Codes: refused, moved."""
