"""
What a client takes: the lists of `Accept` and `Accept-Encoding`, by their weights. Pure.

Source: RFC 9110, 12.4.2 and 12.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_WEIGHT = re.compile(r"0(?:\.\d{0,3})?|1(?:\.0{0,3})?", re.ASCII)


def takes_json(values: Iterable[str]) -> bool:
    """Whether a client names JSON: a range as `*/*` is no name."""
    return _weights(values).get("application/json", 0.0) > 0


def coding_of(values: Iterable[str]) -> str | None:
    """Of gzip and deflate the one that a client likes best; None: it likes plain bytes better."""
    taken = _weights(values)
    others = taken.get("*", 0.0)
    gzip = taken.get("gzip", taken.get("x-gzip", others))
    deflate, identity = taken.get("deflate", others), taken.get("identity", others)
    best = max(gzip, deflate)
    if not best or identity > best:
        return None
    return "gzip" if gzip == best else "deflate"


def _weights(values: Iterable[str]) -> Mapping[str, float]:
    """Each entry without its parameters, and its weight: the highest one where it is there twice."""
    found: dict[str, float] = {}
    for entry in ",".join(values).lower().split(","):
        name, *parameters = (part.strip() for part in entry.split(";"))
        given = next((text.removeprefix("q=") for text in parameters if text.startswith("q=")), "1")
        weight = float(given) if _WEIGHT.fullmatch(given) else 0.0
        found[name] = max(weight, found.get(name, 0.0))
    return found
