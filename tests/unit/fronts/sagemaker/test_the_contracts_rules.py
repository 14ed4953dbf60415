"""Names, pages and texts of the multi-model contract."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import InvalidRequest
from adapter.fronts.failures import is_out_of_memory
from adapter.fronts.llm.routes import Answering
from adapter.fronts.sagemaker import model_id_of, page
from adapter.inference import Failure, InferenceFailed
from adapter.model import Named, id_problem
from adapter.serving import KnownModel
from adapter.settings import read_group
from adapter.settings.fronts import LlmSettings

NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/\\"), min_size=1, max_size=200)


def a_model(name: str) -> KnownModel:
    return KnownModel(name, name, "/u")


@given(st.sets(NAMES))
def test_each_name_has_an_id_of_its_own_that_triton_can_have(names: set[str]) -> None:
    ids = [model_id_of(name) for name in names]
    assert len(set(ids)) == len(names)
    assert not [problem for problem in map(id_problem, ids) if problem]


@given(st.sets(NAMES, max_size=30), st.integers(1, 100))
def test_pages_are_the_whole_list(names: set[str], limit: int) -> None:
    models, seen, token = [a_model(name) for name in sorted(names)], [], None
    for _ in range(len(names) + 1):
        found, token = page(models, str(limit), token)
        assert len(found) <= limit
        seen += found
        if token is None:
            break
    assert (seen, token) == (models, None)


@pytest.mark.parametrize("name", [".", "..", "a/b", "a\\b", "a\nb", "a\0b", "", "\ud800"])
def test_a_name_that_is_a_path_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        Named(name, "/u")


@pytest.mark.parametrize(
    ("text", "at_load", "at_invoke"),
    [
        ("RuntimeError: CUDA out of memory. Tried to allocate 20 GiB", True, True),
        ("CUDA error: out of memory", True, True),
        ("CUDA_ERROR_OUT_OF_MEMORY", True, True),
        ("Failed to allocate memory for requested buffer of size 1048576", True, True),
        ("CUDA_OUT_OF_MEMORY", True, True),
        ("Cuda Runtime (out of memory)", True, True),
        ("OOM when allocating tensor with shape[1024]", True, True),
        ("CNMEM_STATUS_OUT_OF_MEMORY", True, True),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes", True, True),
        ("fork: Cannot allocate memory", True, False),
        ("No available memory for the cache blocks", True, False),
        ("memory limit set for GPU 0 has exceeded, model loading is rejected.", True, False),
        ("failed to allocate pinned system memory, falling back to non-pinned", True, False),
        ("unable to load 'bloom': BLOOM cannot ZOOM", False, False),
        ("Unable to initialize shared memory key 'triton_python_backend_shm_region_1' : No space left on device", True, False),
        ("OOM", False, False),
        ("unable to load 'CUDA out of memory': no file", False, False),
        ("failed to load 'CUDA out of memory_0_0': no file", False, False),
        ("model.py failed: out of memory tests are off", False, False),
    ],
)
def test_texts_that_mean_out_of_memory(text: str, at_load: bool, at_invoke: bool) -> None:
    names = ("CUDA out of memory", "bloom", "m")
    assert (is_out_of_memory(text, names, is_load=True), is_out_of_memory(text, names, is_load=False)) == (at_load, at_invoke)
    for said in (text, "".join(f"\\u{ord(letter):04x}" for letter in text)):
        assert not is_out_of_memory(text, names, is_load=False, said=f'{{"inputs":"{said}"}}'.encode())


@pytest.mark.parametrize(("front", "status"), [("sagemaker", 507), ("lmi", 429)])
async def test_out_of_memory_with_tgi_compat_is_507_for_the_platform_alone(front: str, status: int) -> None:
    async def options(*_: Any) -> bytes:
        return b"option.tgi_compat=true"

    said = await Answering(read_group(LlmSettings, {}), Mock(), options).opened(a_model("m"), front)
    assert said.status(InferenceFailed(Failure.INTERNAL, "CUDA out of memory"), ("m",)) == status
