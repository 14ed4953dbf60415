from collections.abc import Iterator

import pytest

from tests.fronts import llm_bed
from tests.fronts.bed import Pod


@pytest.fixture(scope="session")
def shared_pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    with Pod(tmp_path_factory.mktemp("pod"), {"SAGEMAKER_LOCAL_ENDPOINTS": "true"}) as pod:
        yield pod


@pytest.fixture
def pod(shared_pod: Pod) -> Iterator[Pod]:
    """Shared by all tests of the run; empty at the beginning of each."""
    shared_pod.clear()
    yield shared_pod
    shared_pod.clear()


@pytest.fixture(scope="session")
def language_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """A pod with all of `llm_bed.MODELS`; paths that name no model are for `vllm`."""
    with Pod(tmp_path_factory.mktemp("language_models"), {"LMI_MODEL": "vllm"}) as pod:
        llm_bed.load(pod, llm_bed.MODELS)
        yield pod
