"""
Answers rows with a forest as the FIL backend does on a CPU, into a buffer as Triton makes it; see the test beside it.

Reads lines of JSON from standard input, each a path and a config. Runs in a process of its own, which may die of it.
"""

import ctypes
import json
import mmap
import os
import resource
import sys
from math import prod
from pathlib import Path

import numpy
import treelite
from google.protobuf import text_format
from treelite.core import _LIB, _check_call
from treelite.gtil.gtil import GTILConfig
from tritonclient.grpc import model_config_pb2

FEATURES, ROWS = 4, 100
PAGE = mmap.PAGESIZE
MOST_BYTES = 1024**3
LOADERS = {
    "xgboost_json": lambda path: treelite.frontend.load_xgboost_model(path, format_choice="json"),
    "xgboost_ubj": lambda path: treelite.frontend.load_xgboost_model(path, format_choice="ubjson"),
    "xgboost": treelite.frontend.load_xgboost_model_legacy_binary,
    "lightgbm": treelite.frontend.load_lightgbm_model,
    "treelite_checkpoint": treelite.Model.deserialize,
}


class Guarded:
    """A buffer that ends where a page begins that must not be read or written."""

    def __init__(self, size: int) -> None:
        pages = -(-size // PAGE)
        self._map = mmap.mmap(-1, (pages + 1) * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(start + pages * PAGE), PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
        self.address = start + pages * PAGE - size

    def array(self, dtype: str, count: int) -> numpy.ndarray:
        """The whole buffer as numbers."""
        return numpy.frombuffer((ctypes.c_char * (count * numpy.dtype(dtype).itemsize)).from_address(self.address), dtype)


def gtil(model: treelite.Model, rows: numpy.ndarray, address: int) -> None:
    """GTIL writes all outputs of all rows there, without knowing the size of the buffer."""
    config = GTILConfig(nthread=1, predict_type="default")
    data = rows.ctypes.data_as(ctypes.c_void_p)
    kind = ctypes.c_char_p(model.input_type.encode())
    _check_call(_LIB.TreeliteGTILPredict(model.handle, data, kind, ctypes.c_uint64(len(rows)), ctypes.c_void_p(address), config.handle))


def answer(path: str, text: str) -> None:
    """
    One inference of all rows.

    Source: fil_backend `src/cpu_forest_model.h` and `src/tl_model.h`: a temporary buffer for the class of several, else the
    output's own; then both probabilities of two classes, or the class by the threshold, in place.
    """
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    parameters = {key: value.string_value for key, value in config.parameters.items()}
    model = LOADERS[parameters["model_type"]](path)
    dtype = {"float32": "f4", "float64": "f8"}[model.output_type]
    width = prod(next(tensor.dims for tensor in config.output if tensor.name == "output__0"))
    rows = numpy.random.default_rng(8).random((ROWS, FEATURES)).astype({"float32": "f4", "float64": "f8"}[model.input_type])
    expected = treelite.gtil.predict(model, rows).reshape(ROWS, -1)
    is_class, with_probabilities = (parameters.get(key) == "true" for key in ("output_class", "predict_proba"))
    guarded = Guarded(ROWS * width * numpy.dtype(dtype).itemsize)
    output = guarded.array(dtype, ROWS * width)
    classes = expected.shape[1]
    if is_class and not with_probabilities and classes > 1:
        temporary = Guarded(expected.nbytes)
        gtil(model, rows, temporary.address)
        output[:] = temporary.array(dtype, expected.size).reshape(ROWS, classes).argmax(axis=1)
        expected = expected.argmax(axis=1)
    else:
        gtil(model, rows, guarded.address)
        if classes == 1 and with_probabilities:
            one = output[:ROWS].copy()
            output.reshape(ROWS, width)[:] = numpy.stack([1 - one, one], axis=1)
            expected = numpy.concatenate([1 - expected, expected], axis=1)
        elif classes == 1 and is_class:
            output[:] = output > float(parameters["threshold"])
            expected = expected > float(parameters["threshold"])
    if not numpy.allclose(output, expected.reshape(-1), equal_nan=True):
        raise AssertionError(f"{Path(path).name} answers something else")


def counted(kind: str, path: str) -> str:
    """What Treelite takes the file for: outputs and features, or nothing; asked in a fork, which a hostile file may end."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            model = LOADERS[kind](path)
            shape, ndim = ctypes.POINTER(ctypes.c_uint64)(), ctypes.c_uint64()
            config = GTILConfig(nthread=1, predict_type="default")
            _check_call(
                _LIB.TreeliteGTILGetOutputShape(model.handle, ctypes.c_uint64(1), config.handle, ctypes.byref(shape), ctypes.byref(ndim))
            )
            os.write(theirs, f"{prod(shape[: ndim.value])} {model.num_feature}".encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        said = pipe.read().decode()
    return said if os.waitpid(child, 0)[1] == 0 else ""


def count() -> None:
    """For each line of JSON, a format and a path, one line with what Treelite counts."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    for line in sys.stdin:
        print(counted(*json.loads(line)))


def main() -> None:
    """All lines."""
    for line in sys.stdin:
        answer(*json.loads(line))


if __name__ == "__main__":
    main()
