"""Names of the multi-model contract: opaque texts of the platform, and the model ids that stand for them in Triton. Pure."""

from __future__ import annotations

import hashlib
import re

from adapter.errors import InvalidRequest
from adapter.model import Named, id_problem

_PLAIN = re.compile(r"[0-9A-Za-z._~-]{1,200}")


def named(name: str, url: str) -> Named:
    """Raises InvalidRequest: no model can have this name, or this url."""
    if name in (".", ".."):
        raise InvalidRequest(f"the name of a model cannot be {name!r}")
    return Named(name, url)


def model_id_of(name: str) -> str:
    """
    The name itself; of one that Triton could not have (it is too long, or reserved), or not serve, its digest.

    Triton's python backend starts its process by a shell, with the model's folder unquoted: a space never comes to an end.
    Source: observed on Triton 2.51; `python_backend/src/stub_launcher.cc`.
    """
    is_plain = _PLAIN.fullmatch(name) is not None and id_problem(name) is None
    return name if is_plain else f"sm-{hashlib.sha256(name.encode()).hexdigest()}"
