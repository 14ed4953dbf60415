"""The commands of `deploy/docs/uninstall.md`, with real Helm and kubectl on a real API server."""

from __future__ import annotations

import pytest

from tests.chart.admin import operator, upstream
from tests.chart.admin.admin import CHART, Admin
from tests.chart.admin.api import DEPLOYMENT, INFERENCE_SERVICE, NETWORK_POLICY, POD, RUNTIME, SECRET, SERVICE

pytestmark = pytest.mark.long

PAGE = "uninstall.md"
INSTALL = f'helm install triton-adapter {CHART} --namespace "$NAMESPACE" --set adapter.image.registry="$REGISTRY"'
ENTRY = "storage.entries.s3.type=s3 --set-string storage.entries.s3.bucket=models"
OURS = {"app.kubernetes.io/instance": "triton-adapter"}


def test_what_the_admin_made_stays_and_what_helm_made_goes(admin: Admin) -> None:
    admin.says('kubectl create secret generic storage-config --namespace "$NAMESPACE" --from-literal=s3={}')
    admin.apply(upstream.model())
    admin.says(f'{INSTALL}; helm test triton-adapter --namespace "$NAMESPACE"')
    operator.turn(admin.api, admin.namespace)

    admin.follow(PAGE, "What goes and what stays", "Uninstall")

    assert operator.turn(admin.api, admin.namespace) == {}
    for kind in (RUNTIME, SERVICE, NETWORK_POLICY, DEPLOYMENT, POD):
        assert admin.api.all_of(kind, admin.namespace) == []
    assert admin.api.has(SECRET, admin.namespace, "storage-config")
    assert admin.api.has(INFERENCE_SERVICE, admin.namespace, "digits")


def test_a_secret_that_the_release_made_goes_with_it_and_comes_back_from_the_copy(admin: Admin) -> None:
    admin.says(f"{INSTALL} --set {ENTRY}")
    secret = admin.api.get(SECRET, admin.namespace, "storage-config")
    admin.follow(PAGE, "What goes and what stays")

    admin.says('helm uninstall triton-adapter --namespace "$NAMESPACE"')

    assert not admin.api.has(SECRET, admin.namespace, "storage-config")
    admin.says("kubectl create --filename storage-config.before.yaml")
    assert admin.api.get(SECRET, admin.namespace, "storage-config")["data"] == secret["data"]


def test_plain_manifests_are_deleted(admin: Admin) -> None:
    admin.says('kubectl apply --namespace "$NAMESPACE" --kustomize deploy/manifests/base')

    admin.follow(PAGE, "Plain manifests")

    assert admin.api.all_of(RUNTIME, admin.namespace) == []
