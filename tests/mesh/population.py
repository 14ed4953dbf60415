"""Models for a run: what is registered, what a client sends to each, and which answer is right."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from tritonclient.grpc import service_pb2 as v2

from tests.mesh.runtime import Model
from tests.real.models import affine, sleeper

NUMBER = 7.0
MIB = 1 << 20
LARGE_BYTES = 64 * MIB
SIZES = (MIB // 4, MIB // 2, MIB, 2 * MIB)
SLOW_SECONDS = 1.5
STORAGE_KEY = "s3"


@dataclass(frozen=True)
class Case:
    """A registered model."""

    model: Model
    request: bytes
    """`ModelInfer`, naming another model: the simulator puts the id in."""
    wrong: Callable[[bytes], str | None] = lambda _: None
    """What is wrong with an answer."""
    kind: str = "good"
    memory_bytes: int = 0
    """What it needs in Triton at least; 0 where that is not known."""


def model_key(model_type: str) -> str:
    """As the controller of ModelMesh writes it."""
    return json.dumps({"storage_key": STORAGE_KEY, "model_type": {"name": model_type}})


def kind_of(number: int) -> str:
    """`good`, `slow`, `broken` on purpose, or `too large` for the whole runtime."""
    return "too large" if number == 17 else "broken" if number % 20 == 11 else "slow" if number % 15 == 7 else "good"


def populate(count: int, rng: random.Random, put: Callable[[str, Mapping[str, bytes]], None]) -> list[Case]:
    """Make `count` python models; each adds a number of its own."""
    cases = []
    for number in range(count):
        kind = kind_of(number)
        size = LARGE_BYTES if kind == "too large" else rng.choice(SIZES)
        path = f"models/{number}"
        sleeps = SLOW_SECONDS if kind == "slow" else None
        files = dict(affine(1, number) if sleeps is None else sleeper(sleeps))
        if kind == "broken":
            files["1/model.py"] = b'raise RuntimeError("broken on purpose")\n'
        put(path, files | {"1/weights.bin": bytes(size)})
        model = Model(f"sim-{number}", "mt:python", path, model_key("python"))
        name, given = ("X", NUMBER) if sleeps is None else ("SECONDS", 0.0)
        request = infer_request({name: np.array([given], np.float32)})
        wrong = right_is(NUMBER + number if sleeps is None else 0.0)
        cases.append(Case(model, request, wrong, kind, size))
    return cases


def infer_request(inputs: Mapping[str, np.ndarray[tuple[int], np.dtype[np.float32]]]) -> bytes:
    """For a model of FP32 vectors."""
    request = v2.ModelInferRequest(model_name="whatever-the-client-wrote")
    for name, array in inputs.items():
        request.inputs.add(name=name, datatype="FP32", shape=list(array.shape))
        request.raw_input_contents.append(array.tobytes())
    return bytes(request.SerializeToString())


def right_is(number: float) -> Callable[[bytes], str | None]:
    """An answer of one FP32 number."""

    def wrong(answer: bytes) -> str | None:
        contents = v2.ModelInferResponse.FromString(answer).raw_output_contents
        found = [float(value) for content in contents for value in np.frombuffer(content, np.float32)]
        return None if found == [number] else f"answered {found} instead of {number}"

    return wrong
