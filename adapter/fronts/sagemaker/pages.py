"""
The list of models, a page at a time. Pure.

A token holds the last name of its page, so a page is right however the list has changed since.
Source: "Custom Containers Contract for Multi-Model Endpoints", List Model API; `limit`: multi-model-server.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections.abc import Sequence

from adapter.fronts.answers import HttpError
from adapter.serving import KnownModel

MOST = 100
_VERSION = b"1"


def page(models: Sequence[KnownModel], limit: str | None, token: str | None) -> tuple[Sequence[KnownModel], str | None]:
    """
    One page of models that are sorted by name, and the token of the next one; None where this was the last.

    Raises:
        HttpError: 400: a limit or a token that is none.
    """
    most = _limit(limit)
    start = 0 if token is None else bisect_right([model.name for model in models], _last_name(token))
    found = models[start : start + most]
    return found, _token(found[-1].name) if start + most < len(models) else None


def _limit(text: str | None) -> int:
    if text is None:
        return MOST
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST)) and 1 <= int(text) <= MOST):
        raise HttpError(400, f"limit must be a number from 1 to {MOST}")
    return int(text)


def _token(name: str) -> str:
    return base64.urlsafe_b64encode(_VERSION + name.encode()).decode().rstrip("=")


def _last_name(token: str) -> str:
    try:
        content = base64.b64decode(token.encode("ascii") + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
        name = content.removeprefix(_VERSION).decode()
    except (ValueError, binascii.Error):
        content, name = b"", ""
    if not content.startswith(_VERSION) or _token(name) != token:
        raise HttpError(400, "next_page_token is not one that this server has given")
    return name
