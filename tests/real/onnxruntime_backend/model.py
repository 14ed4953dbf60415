"""
A Triton backend for real ONNX files: ONNX Runtime behind Triton's Python interface.

Stands in for the C++ backend named `onnxruntime` where Triton was built without it. Runs inside
Triton's stub, with Triton's Python; knows nothing of the adapter. Fills in what a config leaves out
(inputs, outputs), as the C++ backend does; unlike it, it never turns batching on by itself.
"""

import json
from pathlib import Path

import onnxruntime
import triton_python_backend_utils as pb_utils

TYPES = {
    "tensor(bool)": "TYPE_BOOL",
    "tensor(uint8)": "TYPE_UINT8",
    "tensor(uint16)": "TYPE_UINT16",
    "tensor(uint32)": "TYPE_UINT32",
    "tensor(uint64)": "TYPE_UINT64",
    "tensor(int8)": "TYPE_INT8",
    "tensor(int16)": "TYPE_INT16",
    "tensor(int32)": "TYPE_INT32",
    "tensor(int64)": "TYPE_INT64",
    "tensor(float16)": "TYPE_FP16",
    "tensor(float)": "TYPE_FP32",
    "tensor(double)": "TYPE_FP64",
    "tensor(string)": "TYPE_STRING",
}


def refuse(text):
    """End the load with this sentence."""
    raise pb_utils.TritonModelException(text)


def open_session(path):
    """An ONNX Runtime session over a file, or over `model.onnx` in a directory (weights beside it)."""
    file = path / "model.onnx" if path.is_dir() else path
    if not file.is_file():
        refuse(f"there is no ONNX file at {file.parent.name}/{file.name}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        reason = str(error).replace(str(file), file.name)
    refuse(f"ONNX Runtime cannot load {file.name}: {reason}")


def described(tensors, has_batching):
    """Triton's form of the tensors of an ONNX graph."""
    for tensor in tensors:
        dims = [size if isinstance(size, int) and size >= 0 else -1 for size in tensor.shape]
        if tensor.type not in TYPES:
            refuse(f"tensor {tensor.name!r} has type {tensor.type}, which Triton does not know")
        if has_batching:
            if not dims or dims[0] != -1:
                refuse(f"max_batch_size is more than 0, but tensor {tensor.name!r} has shape {dims}: its first dimension is not variable")
            dims = dims[1:]
        yield {"name": tensor.name, "data_type": TYPES[tensor.type], "dims": dims}


def compare(kind, given, known):
    """Refuse a config that names tensors which the graph does not have, or with another type."""
    types = {tensor.name: TYPES.get(tensor.type) for tensor in known}
    for each in given:
        name, data_type = each["name"], each["data_type"]
        if name not in types:
            refuse(f"unexpected {kind} {name!r} in the config, the ONNX file has: {', '.join(sorted(types))}")
        if data_type != types[name]:
            refuse(f"{kind} {name!r} is {data_type} in the config and {types[name]} in the ONNX file")


class TritonPythonModel:
    """The interface that Triton's stub looks for."""

    @staticmethod
    def auto_complete_config(config):
        """Add the inputs and outputs that the config does not name. The path is only in our command line."""
        path = Path(Path("/proc/self/cmdline").read_text(encoding="utf-8").split("\0")[1])
        session, given = open_session(path), config.as_dict()
        has_batching = given["max_batch_size"] > 0
        if not given["input"]:
            for tensor in described(session.get_inputs(), has_batching):
                config.add_input(tensor)
        if not given["output"]:
            for tensor in described(session.get_outputs(), has_batching):
                config.add_output(tensor)
        return config

    def initialize(self, args):
        """Open the file of this version."""
        config = json.loads(args["model_config"])
        folder = Path(args["model_repository"]) / args["model_version"]
        self.session = open_session(folder / (config["default_model_filename"] or "model.onnx"))
        compare("input", config["input"], self.session.get_inputs())
        compare("output", config["output"], self.session.get_outputs())
        self.text_inputs = {tensor.name for tensor in self.session.get_inputs() if tensor.type == "tensor(string)"}

    def execute(self, requests):
        """Answer each request by itself: a failing one does not touch the others."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        names = request.requested_output_names()
        try:
            results = self.session.run(names, {tensor.name(): self._values(tensor) for tensor in request.inputs()})
        except Exception as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
        pairs = zip(names, results, strict=True)
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, encoded(values)) for name, values in pairs])

    def _values(self, tensor):
        values = tensor.as_numpy()
        if tensor.name() not in self.text_inputs:
            return values
        texts = [item.decode() for item in values.reshape(-1)]
        flat = values.reshape(-1).copy()
        flat[:] = texts
        return flat.reshape(values.shape)


def encoded(values):
    """Triton's strings are bytes, ONNX Runtime's are text."""
    if values.dtype != object:
        return values
    flat = values.reshape(-1).copy()
    flat[:] = [item.encode() for item in flat]
    return flat.reshape(values.shape)
