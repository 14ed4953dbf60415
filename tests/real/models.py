"""
Small real models, each with its own answers to compare with: made here, in about a second.

A model is a mapping of paths to contents, as it would lie in a bucket.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Files = Mapping[str, bytes]

IR_VERSION = 8
OPSET = 17
SIDE = 8
GLYPHS = """
.###. ..#.. .###. ####. ...#. ##### .###. ##### .###. .###.
#...# .##.. #...# ....# ..##. #.... #.... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ...#. .###. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. ..#.. ....# ##### ....# #...# .#... #...# ....#
#...# ..#.. .#... ....# ...#. #...# #...# .#... #...# ....#
.###. .###. ##### ####. ...#. .###. .###. .#... .###. .###.
"""


def write(files: Files, folder: Path) -> None:
    """Lay a model out in a folder."""
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def draw_digits(count: int, rng: np.random.Generator) -> tuple[Floats, Integers]:
    """Digits of 8 × 8 grey pixels, each shifted, turned, stretched, slanted and noisy in its own way."""
    rows = [line.split() for line in GLYPHS.strip().splitlines()]
    glyphs = np.array([[[cell == "#" for cell in row[digit]] for row in rows] for digit in range(10)], dtype=np.float32)
    labels = rng.integers(0, 10, count)
    canvas = np.pad(glyphs, ((0, 0), (3, 3), (3, 3)))[labels]
    angle, slant = rng.normal(0, 0.12, count), rng.normal(0, 0.12, count)
    scale = rng.uniform(0.9, 1.2, (count, 2))
    turn = np.stack([np.cos(angle), np.sin(angle) + slant, -np.sin(angle), np.cos(angle)], axis=-1).reshape(count, 2, 2)
    grid = np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE), indexing="ij"), axis=-1).reshape(-1, 2) - (SIDE - 1) / 2
    points = np.einsum("nij,pj->npi", turn, grid) * scale[:, None] + rng.normal(0, 0.4, (count, 1, 2))
    points += (np.array(canvas.shape[1:]) - 1) / 2
    points = np.clip(points, 0, np.array(canvas.shape[1:]) - 2)
    low = points.astype(int)
    y, x = low[..., 0], low[..., 1]
    dy, dx = (points - low)[..., 0], (points - low)[..., 1]
    n = np.arange(count)[:, None]
    ink = (1 - dy) * ((1 - dx) * canvas[n, y, x] + dx * canvas[n, y, x + 1]) + dy * (
        (1 - dx) * canvas[n, y + 1, x] + dx * canvas[n, y + 1, x + 1]
    )
    return (ink + rng.normal(0, 0.1, ink.shape)).astype(np.float32), labels


@dataclass(frozen=True)
class DigitsClassifier:
    """A trained network of one hidden layer: 64 pixels → 10 probabilities. `image` → `probabilities`."""

    weights: tuple[Floats, Floats, Floats, Floats]
    """Hidden matrix and bias, output matrix and bias."""
    images: Floats
    """Held out of the training."""
    labels: Integers

    def predict(self, images: Floats) -> Floats:
        """The model's own answer, without ONNX."""
        hidden, hidden_bias, output, output_bias = self.weights
        scores = np.maximum(images @ hidden + hidden_bias, 0) @ output + output_bias
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities: Floats = odds / odds.sum(axis=1, keepdims=True)
        return probabilities

    @property
    def accuracy(self) -> float:
        """Share of the held-out images that it reads right."""
        return float((self.predict(self.images).argmax(axis=1) == self.labels).mean())

    def onnx_bytes(self) -> bytes:
        """The same network as an ONNX file."""
        names = ("hidden_weights", "hidden_bias", "output_weights", "output_bias")
        nodes = [
            helper.make_node("Gemm", ["image", *names[:2]], ["hidden"]),
            helper.make_node("Relu", ["hidden"], ["active"]),
            helper.make_node("Gemm", ["active", *names[2:]], ["scores"]),
            helper.make_node("Softmax", ["scores"], ["probabilities"], axis=1),
        ]
        return onnx_file(
            nodes,
            {"image": (TensorProto.FLOAT, ["batch", SIDE * SIDE])},
            {"probabilities": (TensorProto.FLOAT, ["batch", 10])},
            dict(zip(names, self.weights, strict=True)),
        )


def onnx_file(nodes: list[Any], inputs: Mapping[str, Any], outputs: Mapping[str, Any], weights: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """A checked ONNX file. Inputs and outputs: name → (element type, shape; a text is a variable dimension)."""

    def values(tensors: Mapping[str, Any]) -> list[Any]:
        return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in tensors.items()]

    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "graph", values(inputs), values(outputs), initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def identity_onnx(kind: int, shape: list[str | int]) -> bytes:
    """`x` → `y`, unchanged, for one ONNX element type."""
    node = helper.make_node("Identity", ["x"], ["y"])
    return onnx_file([node], {"x": (kind, shape)}, {"y": (kind, shape)}, {})


def identity(kind: int, datatype: str) -> Files:
    """The same as a model with a whole config, for one dimension. `datatype`: of V2, for the element type."""
    tensors = [f'{way} [{{ name: "{name}" data_type: TYPE_{datatype} dims: [ -1 ] }}]' for way, name in (("input", "x"), ("output", "y"))]
    config = "\n".join(['backend: "onnxruntime"', *tensors])
    return {"1/model.onnx": identity_onnx(kind, ["n"]), "config.pbtxt": config.encode()}


@functools.cache
def digits_classifier(seed: int = 7) -> DigitsClassifier:
    """Trained here, by gradient descent (Adam) on 4,000 drawn digits; 1,000 more are held out."""
    rng = np.random.default_rng(seed)
    images, labels = draw_digits(5000, rng)
    train, target = images[:4000], np.eye(10, dtype=np.float32)[labels[:4000]]
    shapes = ((SIDE * SIDE, 32), (32,), (32, 10), (10,))
    weights = [(rng.normal(0, 0.15, shape) if len(shape) == 2 else np.zeros(shape)).astype(np.float32) for shape in shapes]
    first, second = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    for step in range(1, 251):
        hidden = np.maximum(train @ weights[0] + weights[1], 0)
        scores = hidden @ weights[2] + weights[3]
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        error = (odds / odds.sum(axis=1, keepdims=True) - target) / len(train)
        back = (error @ weights[2].T) * (hidden > 0)
        for i, slope in enumerate((train.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0))):
            first[i] = 0.9 * first[i] + 0.1 * slope
            second[i] = 0.999 * second[i] + 0.001 * slope**2
            weights[i] = weights[i] - 0.02 * (first[i] / (1 - 0.9**step)) / (np.sqrt(second[i] / (1 - 0.999**step)) + 1e-8)
    hidden_weights, hidden_bias, output_weights, output_bias = (w.astype(np.float32) for w in weights)
    return DigitsClassifier((hidden_weights, hidden_bias, output_weights, output_bias), images[4000:], labels[4000:])


TEXT_STATISTICS = '''"""Counts the characters and words of each text."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        texts = [text.decode() for text in pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()]
        counts = np.array([[len(text), len(text.split())] for text in texts], dtype=np.int64).reshape(-1, 2)
        return pb_utils.InferenceResponse([pb_utils.Tensor("COUNTS", counts)])
'''

SLEEPER = '''"""Sleeps: at the start as its config says, in each inference as the request says."""

import json
import time
from pathlib import Path

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        time.sleep(float(json.loads(args["model_config"])["parameters"]["start_seconds"]["string_value"]))

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        seconds = pb_utils.get_input_tensor_by_name(request, "SECONDS").as_numpy()
        Path(__file__).with_name("busy").touch()
        time.sleep(float(seconds[0]))
        return pb_utils.InferenceResponse([pb_utils.Tensor("SLEPT", seconds)])
'''


AFFINE = '''"""Multiplies and adds, as its config says."""

import json
import time
from pathlib import Path

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.factor, self.summand = (float(parameters[name]["string_value"]) for name in ("factor", "summand"))
        self.seconds = float(parameters["seconds"]["string_value"]) if "seconds" in parameters else 0

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        numbers = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        if self.seconds:
            Path(__file__).with_name("busy").touch()
            time.sleep(self.seconds)
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", (numbers * self.factor + self.summand).astype("float32"))])
'''

PIPELINE = '''"""Calls two other models, one after the other; their names are in its config (BLS)."""

import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.steps = [parameters[f"bls_model.{name}"]["string_value"] for name in ("first", "second")]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        numbers = pb_utils.get_input_tensor_by_name(request, "X")
        for step in self.steps:
            inner = pb_utils.InferenceRequest(model_name=step, requested_output_names=["Y"], inputs=[numbers])
            answer = inner.exec()
            if answer.has_error():
                return pb_utils.InferenceResponse(error=answer.error())
            numbers = pb_utils.Tensor("X", pb_utils.get_output_tensor_by_name(answer, "Y").as_numpy())
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", numbers.as_numpy())])
'''


def text_statistics() -> Files:
    """A python model: `TEXT` (strings) → `COUNTS` (characters, words of each)."""
    return _python_model(TEXT_STATISTICS, ("TEXT", "TYPE_STRING", "-1"), ("COUNTS", "TYPE_INT64", "-1, 2"))


def count_text(texts: list[str]) -> Integers:
    """The answers of `text_statistics`, by itself."""
    return np.array([[len(text), len(text.split())] for text in texts], dtype=np.int64).reshape(-1, 2)


def sleeper(start_seconds: float = 0) -> Files:
    """
    A python model that takes its time: `SECONDS` (FP32) → `SLEPT`; `start_seconds` is the length of its load.

    A file `busy` beside its `model.py` appears when an inference has begun.
    """
    parameters = _parameter("start_seconds", str(start_seconds))
    return _python_model(SLEEPER, ("SECONDS", "TYPE_FP32", "1"), ("SLEPT", "TYPE_FP32", "1"), parameters)


def affine(factor: float, summand: float, seconds: float = 0) -> Files:
    """A python model: `X` (FP32) → `Y` = X × factor + summand, after `seconds`; with a file `busy` as that of `sleeper`."""
    parameters = _parameter("factor", str(factor)) + _parameter("summand", str(summand)) + _parameter("seconds", str(seconds))
    return _python_model(AFFINE, ("X", "TYPE_FP32", "-1"), ("Y", "TYPE_FP32", "-1"), parameters)


def ensemble(*, scale: Files, shift: Files) -> Files:
    """A bundle: an ensemble `both` over `scale` and `shift`, `X` → `Y`. An object store keeps no empty version directory."""
    config = (
        'platform: "ensemble" # a comment\nname: "both"\nmax_batch_size: 0\n'
        'input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]\noutput [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
        "ensemble_scheduling { step [\n"
        '  { model_name: "scale" model_version: -1 input_map { key: "X" value: "X" } output_map { key: "Y" value: "scaled" } },\n'
        '  { model_name: "shift" model_version: -1 input_map { key: "X" value: "scaled" } output_map { key: "Y" value: "Y" } }\n] }\n'
    )
    return {"both/config.pbtxt": config.encode()} | _below("scale", scale) | _below("shift", shift)


def pipeline(*, scale: Files, shift: Files) -> Files:
    """A bundle: a python model that calls `scale` and `shift` (BLS), which lie in directories beside its own files."""
    parameters = _parameter("bls_model.first", "scale") + _parameter("bls_model.second", "shift")
    top = _python_model(PIPELINE, ("X", "TYPE_FP32", "-1"), ("Y", "TYPE_FP32", "-1"), parameters)
    return dict(top) | _below("scale", scale) | _below("shift", shift)


def _below(name: str, files: Files) -> dict[str, bytes]:
    return {f"{name}/{path}": content for path, content in files.items()}


def _parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def _python_model(source: str, given: tuple[str, str, str], answer: tuple[str, str, str], more: str = "") -> Files:
    config = 'backend: "python"\nmax_batch_size: 0\n'
    for kind, (name, data_type, dims) in (("input", given), ("output", answer)):
        config += f'{kind} [ {{ name: "{name}" data_type: {data_type} dims: [ {dims} ] }} ]\n'
    config += "instance_group [ { kind: KIND_CPU count: 1 } ]\n" + more
    return {"config.pbtxt": config.encode(), "1/model.py": source.encode()}
