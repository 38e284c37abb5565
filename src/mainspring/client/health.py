"""What a server reports about itself."""

from __future__ import annotations

from mainspring.wire.message import View


class Health(View, frozen=True, kw_only=True):
    """The process answers; `version` is that of the server."""

    status: str
    version: str = ""


class Readiness(View, frozen=True, kw_only=True):
    """The instance can do its work."""

    status: str
    instance: str = ""
