"""Parameters that many endpoints share: who asks, numbers of rows, pages.

In: a request. Out: values of these types, or a problem.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query
from pydantic import Field

from retrieval.paging import LETTERS, MOST
from vcl_plugin.web.access import Site, current_site, require
from vcl_plugin.web.keys import Viewer

Here = Annotated[Site, Depends(current_site)]
Reader = Annotated[Viewer, Depends(require("read"))]
SiteReader = Annotated[Viewer, Depends(require("read", all_owners=True))]
Sender = Annotated[Viewer, Depends(require("upload"))]
Manager = Annotated[Viewer, Depends(require("manage"))]
SiteManager = Annotated[Viewer, Depends(require("manage", all_owners=True))]

Limit = Annotated[int, Query(ge=1, le=MOST)]
After = Annotated[str | None, Query(max_length=LETTERS, description="`next` of a page")]
RowId = Annotated[int, Path(ge=1, lt=2**63)]
Number = Annotated[int, Field(ge=1, lt=2**63)]
AskedNumber = Annotated[int | None, Query(ge=1, lt=2**63)]
Name = Annotated[str, Field(min_length=1, max_length=1000)]
AskedName = Annotated[str | None, Query(max_length=1000)]
VideoId = Annotated[str, Query(min_length=1, max_length=1000, description="id of a video")]
Next = Annotated[str | None, Field(description="cursor of the next page; null: this is the last")]
