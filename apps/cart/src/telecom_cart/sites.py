"""Whether a request that changes something was made by a page of another site.

A browser sends such a request with whatever it is allowed to reach, and asks nobody first if it looks simple. It says
where the page is from, which a page cannot change. Programs say nothing.
"""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

_HARMLESS: Final = ("GET", "HEAD", "OPTIONS")


def is_foreign(scope: Scope) -> bool:
    if scope["method"] in _HARMLESS:
        return False
    headers = Headers(scope=scope)
    site, origins = headers.get("sec-fetch-site"), headers.getlist("origin")
    if site is not None:
        return site not in ("same-origin", "none")
    # Older browsers. In front of us may be somebody who speaks TLS, so that only names and ports are compared.
    own = headers.get("host", "").lower()
    return any(origin.lower().partition("://")[2] != own or not own for origin in origins)
