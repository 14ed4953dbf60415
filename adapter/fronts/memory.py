"""
Texts of Triton and its backends that mean out of memory: the platform then unloads other models and tries again. Pure.

Only whole expressions count, and never a model's name, which texts quote: BLOOM is a model. Sources: Triton core
`backend_model_instance.cc` (limit of GPU memory) and `pinned_memory_manager.cc`; the texts of the CUDA runtime, ONNX Runtime, TensorRT,
PyTorch, TensorFlow and vLLM.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_GPU = re.compile(
    r"\bCUDA(?: error:)? out of memory\b|\bCUDA_ERROR_OUT_OF_MEMORY\b|\bcudaErrorMemoryAllocation\b"
    r"|\b(?:CUBLAS|CUDNN)_STATUS_ALLOC_FAILED\b|\btorch\.(?:cuda\.)?OutOfMemoryError\b|\bCUDA failure 2: out of memory\b"
    r"|\bCUDA_OUT_OF_MEMORY\b|\bCNMEM_STATUS_OUT_OF_MEMORY\b|\bCuda Runtime \(out of memory\)|\bOOM when allocating tensor\b"
    r"|\bFailed to allocate memory for requested buffer of size \d+|\bDefaultCPUAllocator: can't allocate memory\b",
    re.IGNORECASE,
)
_LOAD = re.compile(
    r"\bmemory limit set for GPU \d+ has exceeded\b|\bfailed to allocate pinned system memory\b|\bfailed to allocate (?:GPU|CUDA) memory\b"
    r"|\bstd::bad_alloc\b|\bMemoryError\b|\bNo space left on device\b|\bCannot allocate memory\b"
    r"|\bFree memory on device \(.{1,80}\) on startup is less than desired GPU memory utilization\b"
    r"|\bNo available memory for the cache blocks\b",
    re.IGNORECASE,
)
"""A device without space is the shared memory of python models; the disk is the adapter's, and has errors of its own."""


def is_out_of_memory(text: str, names: Iterable[str], *, is_load: bool, said: object = "") -> bool:
    """
    Whether a failed load, or a failed invoke, says so; the model's `names` do not count, in quotes or in a path.

    Neither do those of its instances, which Triton calls `<name>_<group>_<number>`, nor expressions that the caller has `said`: a
    backend may quote its caller.
    """
    for name in map(re.escape, names):
        text = re.sub(rf"'{name}(?:_\d+)*'|\"{name}(?:_\d+)*\"|/{name}/", " ", text)
    found = _expressions(_GPU, text) | (_expressions(_LOAD, text) if is_load else set())
    return bool(found) and not found <= _expressions(_GPU, str(said))


def _expressions(pattern: re.Pattern[str], text: str) -> set[str]:
    return {found[0].lower() for found in pattern.finditer(text)}
