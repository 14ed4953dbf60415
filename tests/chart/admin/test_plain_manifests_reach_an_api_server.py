"""`deploy/manifests` and `deploy/samples` with the real kubectl on a real API server, in the words of their pages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

import pytest
import yaml

from tests.chart.admin import upstream
from tests.chart.admin.api import INFERENCE_SERVICE, RUNTIME
from tests.chart.admin.cluster import Cluster
from tests.chart.manifests import FOLDERS, MANIFESTS, Folder
from tests.chart.render import NAMESPACE
from tests.chart.samples import documents

pytestmark = pytest.mark.long

PAGE = (MANIFESTS / "README.md").read_text()


def block(language: str, holding: str) -> str:
    found: str
    (found,) = [text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if holding in text]
    return found


@pytest.fixture(scope="module")
def cluster(cluster: Cluster) -> Iterator[Cluster]:
    """With the namespace that the pages name; nothing of it is left."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    yield cluster
    cluster.kubectl("delete", "servingruntimes,networkpolicies,inferenceservices,predictors,secrets", "--all", f"--namespace={NAMESPACE}")


@pytest.fixture
def folder(tmp_path: Path, cluster: Cluster) -> Path:
    """A user's, with the kustomization of the page; no runtime in the namespace."""
    cluster.kubectl("delete", "servingruntimes,networkpolicies", "--all", f"--namespace={NAMESPACE}")
    (tmp_path / "deploy").symlink_to(MANIFESTS.parent)
    (tmp_path / "kustomization.yaml").write_text(block("yaml", "kind: Kustomization"))
    return tmp_path


def names(cluster: Cluster) -> tuple[bool, list[str]]:
    """Whether the runtime has a built-in adapter, and its containers' images."""
    spec = cluster.api.get(RUNTIME, NAMESPACE, "triton-2.x")["spec"]
    return "builtInAdapter" in spec, [container["image"] for container in spec["containers"]]


OURS = (False, ["nvcr.io/nvidia/tritonserver:25.06-py3", "registry.example.com/modelmesh-triton-adapter:0.1.0"])


@pytest.mark.parametrize("each", FOLDERS, ids=lambda each: each.name)
def test_kustomize_gives_the_objects_that_helm_renders(each: Folder, cluster: Cluster) -> None:
    built = list(yaml.safe_load_all(cluster.kubectl("kustomize", str(MANIFESTS / each.name))))

    assert sorted(built, key=itemgetter("kind")) == sorted(each.resources(), key=itemgetter("kind"))


def test_the_command_of_the_page_renders_other_values(cluster: Cluster, folder: Path) -> None:
    cluster.shell(block("bash", "helm template"), folder=folder)

    said = cluster.shell(f"kubectl apply --namespace {NAMESPACE} --dry-run=server --filename runtime.yaml", folder=folder)
    for kind in ("clusterservingruntime", "podmonitor", "prometheusrule", "configmap", "networkpolicy", "service"):
        assert kind in said


@pytest.mark.parametrize("made_by", ["apply", "create"])
def test_the_runtime_with_the_built_in_adapter_becomes_ours(made_by: str, cluster: Cluster, folder: Path) -> None:
    """By `apply` where `apply` made it; else by what the page says."""
    cluster.kubectl(made_by, f"--namespace={NAMESPACE}", "--filename=-", stdin=json.dumps(upstream.runtime()))

    cluster.shell(block("bash", "kubectl apply -k .") if made_by == "apply" else block("bash", "kubectl replace"), folder=folder)

    assert names(cluster) == OURS


def test_all_samples_can_be_applied_at_once(cluster: Cluster) -> None:
    said = cluster.shell(
        f"kubectl apply --namespace {NAMESPACE} -f deploy/samples/storage-config.yaml -f deploy/samples/storage -f deploy/samples/formats"
    )

    kinds = [resource["kind"] for resource in documents().values()]
    assert said.count(" created") == len(kinds) + 1
    assert len(cluster.api.all_of(INFERENCE_SERVICE, NAMESPACE)) == kinds.count("InferenceService")
