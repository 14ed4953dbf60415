"""
`grpcEndpoint` and `grpcDataEndpoint`, which must be ports here.

The controller looks at neither of them: whatever is no port becomes the path of a socket. The chart has no sockets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

PORT = re.compile(r"port:([0-9]+)")


class AssemblyError(Exception):
    """The controller cannot make the pod: its reconcile fails for ever."""


def port(spec: Mapping[str, Any], name: str, default: str = "") -> str:
    """
    The number.

    Raises:
        AssemblyError: it is missing, or no port.
    """
    found = PORT.fullmatch(spec.get(name) or default)
    if found is None:
        raise AssemblyError(f"{name} {spec.get(name)!r} is no port:N")
    return found[1]
