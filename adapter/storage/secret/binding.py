"""
Which stored credentials belong to which place: a request that leads elsewhere does not take them along.

Each type of store has one `Binding`: the fields that are credentials, and the fields that say where
requests go. `credential_endpoints` of the *stored* config names further places that may see them
(`*`: any). Knows no type of store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

ALSO_FOR = "credential_endpoints"
Same = Callable[[object, object], bool]
"""Whether the requested place is the stored one."""


@dataclass(frozen=True)
class Binding:
    """What is bound to what."""

    credentials: tuple[str, ...]
    places: Mapping[str, Same]

    def leads_elsewhere(self, stored: Mapping[str, object], params: Mapping[str, str]) -> bool:
        """Whether the parameters send requests where the stored credentials do not belong."""
        also = str(stored.get(ALSO_FOR) or "").replace(",", " ").split()
        for name, is_same in self.places.items():
            wanted = params.get(name)
            if wanted is None or is_same(wanted, stored.get(name)):
                continue
            if "*" not in also and not any(is_same(wanted, place) for place in also):
                return True
        return False


def is_same_name(wanted: object, stored: object) -> bool:
    """A stored config without such a name leaves the name to the request."""
    return not stored or wanted == stored


NOTHING = Binding((), {})
"""Of a type that has no credentials."""
