"""
What a stored config of one type binds together: its places, its credentials, and who may change which.

Each type of store declares one `Binding`; `merging` applies it in one pass. `credential_endpoints` of the
*stored* config names further places that its credentials may go to (`*`: any). Knows no type of store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from adapter.storage.secret.fields import text_of

ALSO_FOR = "credential_endpoints"
Same = Callable[[object, object], bool]
"""Whether the requested place is the stored one."""


@dataclass(frozen=True, kw_only=True)
class Binding:
    """What is bound to what."""

    places: Mapping[str, Same] = field(default_factory=dict)
    """Fields that say where requests go. A request that names a place of its own gets nothing stored, and no identity of the pod."""
    credentials: tuple[str, ...] = ()
    """Fields that say who asks. A request that brings one of them replaces all stored ones, so that no two identities are mixed."""
    whole: tuple[tuple[str, ...], ...] = ()
    """Sets of credentials: a request that brings credentials brings one of them, whole."""
    collection: str = ""
    """The credential that has entries of its own (`headers`): at the stored place, entries of a request join the stored ones."""
    beside: tuple[str, ...] = ()
    """Fields that belong to the stored credentials, and go when those go."""
    fixed: tuple[str, ...] = ()
    """Fields, in lower case, that change the host behind a place: not a request's to set while stored credentials or the pod's are used."""

    def requested(self, stored: Mapping[str, object], params: Mapping[str, str]) -> frozenset[str]:
        """Places that the parameters name and the stored config does not, neither in the same field nor in `credential_endpoints`."""
        also = _also(stored)
        return frozenset(
            name
            for name, is_same in self.places.items()
            if name in params and not any(is_same(params[name], known) for known in (stored.get(name), *also) if known)
        )

    def leads_elsewhere(self, stored: Mapping[str, object], params: Mapping[str, str]) -> bool:
        """Whether the parameters send requests where the stored credentials do not belong."""
        if "*" in _also(stored):
            return False
        return any(not self.places[name](params[name], stored.get(name)) for name in self.requested(stored, params))

    def holds(self, stored: Mapping[str, object], params: Mapping[str, str]) -> bool:
        """Whether something stored proves an identity: a credential, or a place that is used and has a signature in its query."""
        is_signed = any("?" in (text_of(stored.get(name)) or "") for name in self.places if name not in params)
        return is_signed or any(stored.get(name) for name in self.credentials)

    def own(self, stored: Mapping[str, object], params: Mapping[str, str]) -> frozenset[str]:
        """Credentials that the parameters bring; those that only repeat what is stored are none."""
        named = {name.partition(".")[0] for name in params} & set(self.credentials)
        is_new = any(text_of(stored.get(name)) != text_of(params.get(name)) for name in named - {self.collection})
        return frozenset(named if is_new else named & {self.collection})

    def missing(self, own: frozenset[str]) -> list[str]:
        """What these credentials need to be whole."""
        begun = [each for each in self.whole if own.intersection(each)] or (self.whole[:1] if own else ())
        return [name for each in begun for name in each if name not in own]


def is_same_name(wanted: object, stored: object) -> bool:
    """A stored config without such a name leaves the name to the request."""
    return not stored or text_of(wanted) == text_of(stored)


def is_same_text(wanted: object, stored: object) -> bool:
    """Whether both say the same."""
    return text_of(wanted) == text_of(stored)


def _also(stored: Mapping[str, object]) -> list[str]:
    return (text_of(stored.get(ALSO_FOR)) or "").replace(",", " ").split()


NOTHING = Binding()
"""Of a type that has no credentials."""
