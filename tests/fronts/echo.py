"""A model that gives back what it is given: one optional input and one output for each datatype."""

from __future__ import annotations

from tests.real.models import Files

DATATYPES = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64", "BYTES",
)  # fmt: skip

SOURCE = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([self.same(tensor) for tensor in request.inputs()]) for request in requests]

    def same(self, tensor):
        if tensor.name() == "X_BYTES":
            return pb_utils.Tensor("Y_BYTES", tensor.as_numpy())
        return pb_utils.Tensor.from_dlpack("Y" + tensor.name()[1:], tensor.to_dlpack())
"""


def echo() -> Files:
    """A python model: `X_FP32` → `Y_FP32`, and so on; any two dimensions."""
    config = 'backend: "python"\nmax_batch_size: 0\ninstance_group [ { kind: KIND_CPU count: 1 } ]\n'
    for datatype in DATATYPES:
        kind = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
        config += f'input [ {{ name: "X_{datatype}" data_type: {kind} dims: [ -1, -1 ] optional: true }} ]\n'
        config += f'output [ {{ name: "Y_{datatype}" data_type: {kind} dims: [ -1, -1 ] }} ]\n'
    return {"config.pbtxt": config.encode(), "1/model.py": SOURCE.encode()}
