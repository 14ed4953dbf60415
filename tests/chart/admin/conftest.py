"""One API server for all tests here, an admin with a namespace for each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chart.admin import apiserver_install
from tests.chart.admin.admin import Admin
from tests.chart.admin.api import CLUSTER_RUNTIME, RUNTIME
from tests.chart.admin.cluster import Cluster
from tests.chart.admin.node import Node
from tests.real import parts

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Over when the tests of this folder are: what comes later has the machine for itself."""
    parts.or_skip(apiserver_install.programs)
    with Cluster() as cluster, Node(cluster.api, cluster.certificate, tmp_path_factory.mktemp("node")):
        yield cluster


@pytest.fixture
def admin(cluster: Cluster, tmp_path: Path) -> Iterator[Admin]:
    """No runtime is left after the test; nothing else is in its namespace."""
    yield Admin(cluster, f"models-{next(_numbers)}", tmp_path)
    for kind in (RUNTIME, CLUSTER_RUNTIME):
        for each in cluster.api.all_of(kind, ""):
            cluster.api.ask("DELETE", kind.path(each["metadata"].get("namespace", ""), each["metadata"]["name"]))
