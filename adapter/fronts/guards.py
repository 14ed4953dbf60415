"""
Who may call what: `HTTP_RESTRICTED_API`. Pure.

The form is `group,group:Header=value`, several of them joined by `;`. Source of the idea: Triton's `--http-restricted-api`.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass

from adapter.errors import StartError

REPOSITORY = "model-repository"
GROUPS = frozenset({"health", "metadata", "inference", REPOSITORY, "model-config", "statistics"})
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""Source: RFC 9110, token."""


@dataclass(frozen=True)
class Rule:
    """A header without which a group of calls is refused."""

    header: str
    value: str

    def allows(self, headers: Mapping[str, str]) -> bool:
        """Whether a request carries it. Takes the same time for each wrong value."""
        return hmac.compare_digest(headers.get(self.header, "").encode("utf-8", "surrogateescape"), self.value.encode())


def rules_of(text: str) -> dict[str, Rule]:
    """
    Group of calls → its rule.

    Raises:
        StartError: the text is not of the form; no value is quoted.
    """
    found: dict[str, Rule] = {}
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        names, colon, pair = entry.partition(":")
        header, equals, value = pair.partition("=")
        if not (colon and equals and value and _HEADER.fullmatch(header)):
            raise StartError("HTTP_RESTRICTED_API: each entry is written as model-repository,model-config:Header=value")
        for name in (part.strip() for part in names.split(",")):
            if name not in GROUPS:
                raise StartError(f"HTTP_RESTRICTED_API: there is no group of calls {name!r}; there are {', '.join(sorted(GROUPS))}")
            if name in found:
                raise StartError(f"HTTP_RESTRICTED_API: the group {name} has two rules")
            found[name] = Rule(header, value)
    return found
