"""
Invokes of one model over SageMaker's contract while another one is unloaded, beside the same without an unload; ours and Triton's own.

The model that leaves takes its time to end, as one that has much to free.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from tests.benchmark.fronts_client import Client, json_request, percentile
from tests.benchmark.report import OURS, Finding, Row
from tests.fronts.rig import Answer, FrontsPod, Http
from tests.real import models
from tests.real.children import PartError
from tests.real.polls import until
from tests.real.ports import free_ports
from tests.real.triton import Triton

TRITONS = "Triton's own"
ROOT = Path("/opt/ml/models")
"""Triton's front takes no model from elsewhere. Source: Triton server `sagemaker_server.cc`."""
LEAST_ROUNDS = 5
GOAL = 1.1
SETTLE_SECONDS = 0.05
"""Until the unload is on its way."""
TURN_SECONDS = 2.0
"""Without an unload, and about as long as one takes."""
LEAVING = b"""
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(r, "X").as_numpy())]) for r in requests]

    def finalize(self):
        time.sleep(%f)
"""
REQUEST = json_request("/models/echo/invoke", 128)
Ask = Callable[[], float]


@dataclass(frozen=True)
class Side:
    """A server that has the contract, with a folder of models."""

    http: Http
    root: Path
    mark: str = ""
    """Its folders begin with it: Triton's front takes none that lies deeper."""

    def is_there(self) -> bool:
        """Whether it listens."""
        with suppress(OSError):
            return self.http("GET", "/ping").status == 200
        return False

    def load(self, name: str, files: models.Files) -> None:
        """POST /models. Raises RuntimeError: it was refused."""
        folder = self.root / f"{self.mark}{name}" / "model"
        models.write(files, folder)
        _checked(self.http("POST", "/models", {"model_name": name, "url": str(folder)}))

    def unload(self, name: str) -> None:
        """DELETE /models/{name}. Raises RuntimeError: it was refused."""
        _checked(self.http("DELETE", f"/models/{name}"))


def unloads(finding: Finding, pod: FrontsPod, rounds: int) -> None:
    """Rows for connections that are kept, and for new ones."""
    with ExitStack() as stack:
        sides = {OURS: Side(pod.sagemaker, pod.models)}
        try:
            sides[TRITONS] = stack.enter_context(_tritons_own())
        except (OSError, PartError, RuntimeError) as error:
            finding.notes.append(f"Triton's own SageMaker front was not measured: {str(error).splitlines()[0]}")
        for side, server in sides.items():
            if side != OURS:  # the pod has it
                server.load("echo", models.affine(1, 0))
        for kind in ("kept connection", "new connections"):
            found: dict[str, list[tuple[list[float], list[float]]]] = {side: [] for side in sides}
            for _ in range(max(LEAST_ROUNDS, rounds)):
                for side, server in sides.items():
                    found[side].append(_cycle(server, is_kept=kind.startswith("kept")))
            for side, turns in found.items():
                finding.rows += _rows(kind, side, turns)
    finding.notes.append(
        "Invokes: 128 floats as JSON, one after the other, while another model is unloaded, which takes at least "
        f"{TURN_SECONDS:g} s to end itself. Ratio: median of the rounds, from … to: their ends."
    )


def _cycle(server: Side, *, is_kept: bool) -> tuple[list[float], list[float]]:
    """Milliseconds of invokes: before the other model is unloaded, and until it is."""
    server.load("leaving", {**models.affine(1, 0), "1/model.py": LEAVING % TURN_SECONDS})
    with ThreadPoolExecutor(1) as pool, closing(Client(server.http.port)) as client:

        def ask() -> float:
            return client.timed(REQUEST)

        ask()
        timed = ask if is_kept else lambda: _on_a_new_one(server.http.port)
        end = time.monotonic() + TURN_SECONDS
        before = _while(lambda: time.monotonic() < end, timed)
        unload = pool.submit(server.unload, "leaving")
        time.sleep(SETTLE_SECONDS)
        during = _while(lambda: not unload.done(), timed)
        unload.result()
    return before, during


def _while(goes_on: Callable[[], bool], ask: Ask) -> list[float]:
    times = []
    while goes_on():
        times.append(ask())
    return times


def _on_a_new_one(port: int) -> float:
    began = time.perf_counter()
    with closing(Client(port)) as client:
        client.ask(REQUEST)
    return (time.perf_counter() - began) * 1000


def _rows(kind: str, side: str, turns: Sequence[tuple[list[float], list[float]]]) -> Iterator[Row]:
    before, during = ([time for turn in turns for time in turn[place]] for place in (0, 1))
    for what, part in (("p50", 50), ("p99", 99)):
        case = f"invokes while a model unloads, {kind}, {what}"
        yield Row("fronts", case, side, percentile(during, part), "ms", False)
        yield Row("fronts", case, f"{side}, no unload", percentile(before, part), "ms", False)
    by_round = [percentile(after, 99) / percentile(quiet, 99) for quiet, after in turns]
    case = f"invokes, {kind}: p99 during an unload beside that without"
    yield Row("fronts", case, side, statistics.median(by_round), "times", False, min(by_round), max(by_round))
    if side == OURS:
        yield Row("fronts", case, "goal", GOAL, "times", False)


@contextmanager
def _tritons_own() -> Iterator[Side]:
    """Another Triton, with its front for SageMaker. Raises PartError, OSError: it cannot be started, or nothing can lie where it looks."""
    made = [folder for folder in (ROOT, ROOT.parent) if not folder.exists()]
    ROOT.mkdir(parents=True, exist_ok=True)
    mark = f"bench{token_hex(4)}"
    try:
        repository = ROOT / f"{mark}repository"
        repository.mkdir()
        (port,) = free_ports(1)
        words = ["--allow-sagemaker=true", f"--sagemaker-port={port}", "--model-namespacing=true"]
        with Triton(repository, extra_args=words):
            side = Side(Http(port), ROOT, mark)
            until(side.is_there, "Triton's SageMaker front")  # it comes last
            yield side
    finally:
        for folder in ROOT.glob(f"{mark}*"):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in made:
            with suppress(OSError):  # somebody else's by now
                folder.rmdir()


def _checked(answer: Answer) -> None:
    if answer.status != 200:
        raise RuntimeError(f"the server answered {answer.status}: {answer.body[:300]!r}")
