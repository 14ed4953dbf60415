"""Objects checked as an API server checks them: a field that it does not know, or a value of a wrong type, is a problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kubernetes_validate

from tests.chart import crd

KUBERNETES = "1.34"


def problems(found: Mapping[str, Any]) -> list[str]:
    """What is wrong with the object, as `place: words`; kinds of Kubernetes itself tell their first problem only."""
    if crd.is_known(found):
        return crd.problems(found)
    try:
        kubernetes_validate.validate(dict(found), KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{'.'.join(map(str, error.path)) or found['kind']}: {error.message}"]
    except kubernetes_validate.SchemaNotFoundError as error:
        return [f"{error.api_version} {error.kind}: no schema"]
    return []
