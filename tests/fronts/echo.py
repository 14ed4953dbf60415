"""Models that give back what they are given: tensors of each datatype, or the parameters of the request."""

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

PARAMETERS = """import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SEEN", np.array([self.seen(request)], object))]) for request in requests]

    def seen(self, request):
        return json.dumps([request.request_id(), json.loads(request.parameters())])
"""


def echo() -> Files:
    """A python model: `X_FP32` → `Y_FP32`, and so on; any two dimensions."""
    config = 'backend: "python"\nmax_batch_size: 0\ninstance_group [ { kind: KIND_CPU count: 1 } ]\n'
    for datatype in DATATYPES:
        kind = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
        config += f'input [ {{ name: "X_{datatype}" data_type: {kind} dims: [ -1, -1 ] optional: true }} ]\n'
        config += f'output [ {{ name: "Y_{datatype}" data_type: {kind} dims: [ -1, -1 ] }} ]\n'
    return {"config.pbtxt": config.encode(), "1/model.py": SOURCE.encode()}


def parameters_seen() -> Files:
    """A python model: any `X` → `SEEN`, the id and the parameters of the request as JSON."""
    config = (
        'backend: "python"\nmax_batch_size: 0\ninstance_group [ { kind: KIND_CPU count: 1 } ]\n'
        'input [ { name: "X" data_type: TYPE_BOOL dims: [ 1 ] } ]\noutput [ { name: "SEEN" data_type: TYPE_STRING dims: [ 1 ] } ]\n'
    )
    return {"config.pbtxt": config.encode(), "1/model.py": PARAMETERS.encode()}
