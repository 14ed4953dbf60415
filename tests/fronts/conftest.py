from collections.abc import Iterator

import pytest

from tests.fronts import llm_rig
from tests.fronts.rig import FrontsPod


@pytest.fixture(scope="session")
def shared_pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontsPod]:
    with FrontsPod(tmp_path_factory.mktemp("pod"), {"SAGEMAKER_LOCAL_ENDPOINTS": "true"}) as pod:
        yield pod


@pytest.fixture
def pod(shared_pod: FrontsPod) -> Iterator[FrontsPod]:
    """Shared by all tests of the run; empty at the beginning of each."""
    shared_pod.clear()
    yield shared_pod
    shared_pod.clear()


@pytest.fixture(scope="session")
def language_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontsPod]:
    """A pod with all of `llm_rig.MODELS`; paths that name no model are for `vllm`."""
    with FrontsPod(tmp_path_factory.mktemp("language_models"), {"LMI_MODEL": "vllm"}) as pod:
        pod.keep(llm_rig.MODELS)
        yield pod
