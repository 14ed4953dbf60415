"""A new row of the table is held to what every store is held to."""

from __future__ import annotations

import pytest

from adapter.storage.secret.merging import merged
from adapter.storage.stores.table import BINDINGS, BUCKETS
from tests.builders import a_spec
from tests.contract.bucket.model_rigs import STOCKS

ELSEWHERE = {
    "s3": {"endpoint_url": "https://theirs"},
    "gcs": {"endpoint_url": "https://theirs"},
    "azure": {"endpoint_url": "https://theirs", "container": "c"},
    "http": {"url": "https://theirs"},
}
"""What leads a request to a place of its own."""


def test_the_contract_suite_has_a_rig_for_every_row() -> None:
    assert {*BUCKETS, "pvc"} == {kind.partition(" ")[0] for kind in STOCKS}


def test_the_rules_of_secrets_have_cases_for_every_row() -> None:
    assert set(BUCKETS) == set(ELSEWHERE)


@pytest.mark.parametrize("kind", BUCKETS)
def test_a_place_of_the_requests_own_gets_no_identity(kind: str) -> None:
    """No stored credentials, and not the pod's own: `anonymous` is honoured by every row."""
    config = merged({}, a_spec(storage_params={"type": kind, **ELSEWHERE[kind]}), "storage config 's'", BINDINGS)

    connection = BUCKETS[kind].connection(config)

    assert config.is_unsigned
    assert connection.is_anonymous
    assert connection.keys == ()
