"""
Each sample as a request to the adapter, as ModelMesh Serving's controller would make it, with the sample secret.

Checked up to the connection: a store that is asked for the model is in `tests/contract/bucket`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from adapter.layout.model_types import TYPES
from adapter.model import ModelSpec
from adapter.parameters import PARAMETERS
from adapter.spi.codec import decode
from adapter.storage.secret.config import StorageConfigs
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.azure import container_of
from adapter.storage.stores.http import headers_of, url_of
from adapter.storage.stores.table import BINDINGS, BUCKETS
from tests.chart.predictors import predictor_of
from tests.chart.samples import SAMPLES, documents, secret

STORES = {*BUCKETS, "pvc"}
DOCUMENTS = documents()
FORMATS = {name: resource for name, resource in DOCUMENTS.items() if name.startswith("formats/")}
CREDENTIALS = {name for binding in BINDINGS.values() for name in binding.credentials}

each_sample = pytest.mark.parametrize("resource", DOCUMENTS.values(), ids=DOCUMENTS)


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StorageConfigs]:
    """The sample secret as the pod sees it: one file for each key."""
    folder = tmp_path_factory.mktemp("storage-config")
    for key, text in secret().items():
        (folder / key).write_text(text)
    with ThreadPoolExecutor(1) as executor:
        yield StorageConfigs(folder, BINDINGS, executor)


def spec_of(resource: dict[str, Any]) -> ModelSpec:
    return decode(predictor_of(resource).load_request())


def check_place(config: StorageConfig, spec: ModelSpec) -> None:
    """What a store reads before its first request."""
    if config.type == "pvc":
        assert config.values["name"]
        return
    BUCKETS[config.type].connection(config)
    if config.type == "http":
        assert url_of(config).netloc
        headers_of(config)
    elif config.type == "azure":
        assert container_of(config)
    else:
        assert config.required_bucket()
    assert spec.path or config.type == "http", "an empty path is the whole bucket"


@each_sample
async def test_the_adapter_accepts_the_request_and_finds_the_place(resource: dict[str, Any], configs: StorageConfigs) -> None:
    spec = spec_of(resource)

    config = await configs.resolve(spec)

    check_place(config, spec)
    assert spec.model_type in TYPES


@each_sample
async def test_a_sample_with_a_storage_key_is_read_with_what_is_stored(resource: dict[str, Any], configs: StorageConfigs) -> None:
    """A place of the request's own would get no credentials."""
    spec = spec_of(resource)
    config = await configs.resolve(spec)
    stored = json.loads(secret()[spec.storage_key]) if spec.storage_key else {}

    kept = {name for name in stored if name.partition(".")[0] in CREDENTIALS}

    assert not (spec.storage_key and config.is_unsigned)
    assert {name.partition(".")[0] for name in kept} <= set(config.values)


@pytest.mark.parametrize("store", sorted(STORES))
async def test_each_store_has_samples_of_every_form(store: str, configs: StorageConfigs) -> None:
    found = documents("storage")
    kinds = {name: (await configs.resolve(spec_of(resource))).type for name, resource in found.items()}
    of_store = [found[name] for name, kind in kinds.items() if kind == store]
    models = [each["spec"]["predictor"]["model"] for each in of_store if each["kind"] == "InferenceService"]

    assert {name.partition(":")[0] for name, kind in kinds.items() if kind == store} == {f"storage/{store}.yaml"}
    assert {each["kind"] for each in of_store} == {"InferenceService", "Predictor"}
    assert {True, False} == {"storageUri" in model for model in models}
    assert [key for key, text in secret().items() if json.loads(text)["type"] == store]


def test_every_own_parameter_and_every_key_of_the_secret_is_used() -> None:
    predictors = [predictor_of(resource) for resource in DOCUMENTS.values()]
    used = {name for predictor in predictors for name in predictor.parameters}

    assert {parameter.name for parameter in PARAMETERS} <= used
    assert {predictor.storage_key for predictor in predictors} - {None} == set(secret())


def test_the_secret_holds_texts_only_and_no_credentials() -> None:
    """The controller reads every entry into a map of texts; one that does not fit stops all runtimes of the namespace."""
    for key, text in secret().items():
        entry = json.loads(text)
        assert all(isinstance(value, str) for value in entry.values()), key
        secrets = [value for name, value in entry.items() if name.partition(".")[0] in CREDENTIALS]
        assert all(re.search(r"<[\w (),\\]+>", value) for value in secrets), key


def test_the_samples_lie_where_their_page_says() -> None:
    page = (SAMPLES / "README.md").read_text()

    assert [str(path.relative_to(SAMPLES)) for path in SAMPLES.rglob("*.yaml") if path.name not in page] == []
