"""Which model a path of the V2 protocol names."""

from __future__ import annotations

from aiohttp import web

from adapter.fronts.answers import HttpError
from adapter.fronts.edge import name_in

_LONGEST_VERSION = 18
PLACES = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")


def place_of(request: web.Request) -> tuple[str, str]:
    """
    Name and version; no version: the empty text.

    Raises:
        HttpError: 400: the name is no UTF-8, or the version no number.
    """
    version = request.match_info.get("version", "")
    if "version" in request.match_info and not (version.isascii() and version.isdigit() and len(version) <= _LONGEST_VERSION):
        raise HttpError(400, "the version in the path must be a number")
    return name_in(request), version
