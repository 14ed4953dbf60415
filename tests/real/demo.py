"""
The main job, for real, step by step: S3 → adapter → Triton → inference → unload.

Starts a real S3 server, a real Triton and the adapter as processes, and acts as ModelMesh. Every
claim in the table was checked when its line is printed; the exit code is 0 only if all hold.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as v2

from tests.real.adapter import AdapterProcess
from tests.real.children import PartError
from tests.real.mesh import LONG_ENOUGH_SECONDS, Mesh
from tests.real.models import count_text, digits_classifier, text_statistics
from tests.real.pod import BUCKET, Pod, secret
from tests.real.polls import until
from tests.real.s3 import S3Server
from tests.real.triton import Triton

DIGITS, TEXTS = "digits__isvc-3f2a9c", "texts__isvc-81b07d"
STEP_WIDTH, WHAT_WIDTH = 12, 68


class Table:
    """Steps as they happen, a line each."""

    def __init__(self) -> None:
        self.failures = 0
        print(f"\n{'step':{STEP_WIDTH}}{'what happened':{WHAT_WIDTH}}{'seconds':>8}")
        print("─" * (STEP_WIDTH + WHAT_WIDTH + 8), flush=True)

    @contextmanager
    def step(self, name: str) -> Iterator[list[str]]:
        """Fill the list with what happened; an exception becomes a failed line and goes on."""
        what: list[str] = []
        started = time.perf_counter()
        try:
            yield what
        except BaseException:
            what = ["FAILED"]
            raise
        finally:
            first, *others = what or ["done"]
            print(f"{name:{STEP_WIDTH}}{first:{WHAT_WIDTH}}{time.perf_counter() - started:8.2f}", flush=True)
            for line in others:
                print(f"{'':{STEP_WIDTH}}{line}", flush=True)

    def check(self, what: list[str], claim: str, holds: bool) -> None:
        """Note a claim that was just tested."""
        what.append(f"{'✓' if holds else '✗'} {claim}")
        self.failures += not holds


def main() -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__.strip().splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="leave everything running, and print what to try next")
    chosen = parser.parse_args()
    try:
        with ExitStack() as stack:
            return _run(stack, keep=chosen.keep)
    except KeyboardInterrupt:
        print("\nstopped")
        return 130
    except (PartError, TimeoutError, grpc.RpcError) as error:
        print(f"\ndemo failed: {_words(error)}", file=sys.stderr)
        return 1


def _run(stack: ExitStack, *, keep: bool) -> int:
    table = Table()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="modelmesh-triton-demo-")))
    volume = folder / "models"
    with table.step("train") as what:
        digits = digits_classifier()
        model = digits.onnx_bytes()
        what.append(f"digits classifier, {digits.accuracy:.1%} of 1,000 held-out digits right")
    with table.step("S3") as what:
        s3 = stack.enter_context(S3Server(folder / "s3"))
        files = {"digits/model.onnx": model} | {f"texts/{path}": content for path, content in text_statistics().items()}
        for key, content in files.items():
            s3.put(BUCKET, key, content)
        what.append(f"{len(files)} objects, {sum(map(len, files.values())):,} bytes in s3://{BUCKET} at {s3.endpoint_url}")
    with table.step("pod") as what:
        env = {"LOADTIME_TIMEOUT": "90000", "CACHE_MAX_BYTES": "64Mi"}
        pod = stack.enter_context(Pod(volume, secret(folder / "storage-config", s3), env, completes=True))
        triton, adapter, mesh = pod.triton, pod.adapter, pod.mesh
        what.append(f"tritonserver is live at {triton.grpc_target}, without a model")
        what.append(f"mmesh.ModelRuntime answers at {adapter.channel_target}")
    with table.step("start") as what:
        state = mesh.start()
        what.append(f"runtimeStatus READY: Triton {state.runtimeVersion}, capacity {state.capacityInBytes >> 20:,} MiB")
    _serve_digits(table, mesh)
    _serve_texts(table, mesh)
    _crash(table, mesh, triton, adapter)
    if keep:
        _keep(mesh, adapter, triton, s3)
    _unload(table, mesh, volume, adapter)
    print("─" * (STEP_WIDTH + WHAT_WIDTH + 8))
    print("everything holds" if not table.failures else f"{table.failures} claims do not hold")
    return 1 if table.failures else 0


def _serve_digits(table: Table, mesh: Mesh) -> None:
    digits = digits_classifier()
    with table.step("predict") as what:
        what.append(f"predictModelSize({DIGITS}) = {mesh.predict(DIGITS, 'onnx', 'digits'):,} bytes")
    with table.step("load") as what:
        size = mesh.load(DIGITS, "onnx", "digits").sizeInBytes
        what.append(f"ONNX model {DIGITS}, {size:,} bytes")
    with table.step("infer") as what:
        answer = mesh.infer(DIGITS, {"image": digits.images[:100]})["probabilities"]
        own = digits.predict(digits.images[:100])
        table.check(what, "100 digits: probabilities equal the model's own", bool(np.allclose(answer, own, atol=1e-5)))
        right = int((answer.argmax(axis=1) == digits.labels[:100]).sum())
        what.append(f"  {right} of 100 read right; the first is a {answer[0].argmax()} ({answer[0].max():.0%} sure)")


def _serve_texts(table: Table, mesh: Mesh) -> None:
    texts = ["ModelMesh asks,", "Triton answers,", "and the adapter stays out of the way"]
    with table.step("load") as what:
        size = mesh.load(TEXTS, "python", "texts").sizeInBytes
        what.append(f"python model {TEXTS}, {size:,} bytes")
    with table.step("infer") as what:
        counts = mesh.infer(TEXTS, {"TEXT": np.array(texts, dtype=np.object_)})["COUNTS"]
        table.check(what, "3 texts: characters and words as counted here", bool((counts == count_text(texts)).all()))
    with table.step("again") as what:
        mesh.load(TEXTS, "python", "texts")
        what.append("the same load once more: a look, no work")


def _crash(table: Table, mesh: Mesh, triton: Triton, adapter: AdapterProcess) -> None:
    pulled = _pulled_bytes(adapter)
    with table.step("crash") as what:
        triton.kill()
        triton.start()
        what.append("kill -9 of Triton; it is back, and holds nothing")
    with table.step("restore") as what:
        until(lambda: all(_answers(mesh, model_id) for model_id in (DIGITS, TEXTS)), "both models answer")
        table.check(what, "both models answer again without a new request for them", _pulled_bytes(adapter) == pulled)


def _answers(mesh: Mesh, model_id: str) -> bool:
    return bool(mesh.triton.ModelReady(v2.ModelReadyRequest(name=model_id), timeout=LONG_ENOUGH_SECONDS, wait_for_ready=True).ready)


def _pulled_bytes(adapter: AdapterProcess) -> float:
    """What the adapter has pulled from storage in all."""
    with urllib.request.urlopen(f"{adapter.metrics_url}/metrics") as answer:
        rows = [line.split() for line in answer.read().decode().splitlines()]
    return sum(float(value) for name, *_, value in rows if name.startswith("triton_adapter_pulled_bytes_total"))


def _unload(table: Table, mesh: Mesh, volume: Path, adapter: AdapterProcess) -> None:
    for model_id in (DIGITS, TEXTS):
        with table.step("unload") as what:
            mesh.unload(model_id)
            what.append(model_id)
    with table.step("reload") as what:
        pulled = _pulled_bytes(adapter)
        mesh.load(DIGITS, "onnx", "digits")
        table.check(what, "loaded again: one listing, no byte from S3", _pulled_bytes(adapter) == pulled)
        mesh.unload(DIGITS)
    with table.step("proof") as what:
        held = {name: state for name, state in mesh.index().items() if state not in ("", "UNAVAILABLE")}
        table.check(what, "Triton's index shows no model", not held)
        table.check(what, "Triton's repository folder is empty", not list((volume / "_triton_models").iterdir()))
        left = [path for folder in ("staging", "trash") for path in (volume / "_adapter" / folder).iterdir()]
        table.check(what, "nothing but the cache is left in the adapter's own folder", not left)


def _keep(mesh: Mesh, adapter: AdapterProcess, triton: Triton, s3: S3Server) -> None:
    print(f"""
Both models stay loaded. To try next:

  curl {adapter.metrics_url}/readyz
  curl {adapter.metrics_url}/metrics
  curl -X POST localhost:{triton.http_port}/v2/repository/index
  curl -X POST localhost:{triton.http_port}/v2/models/{TEXTS}/infer -d \\
    '{{"inputs": [{{"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": ["hello world"]}}]}}'
  ADAPTER_ENDPOINT={adapter.channel_target} .venv/bin/modelmesh-triton-adapter probe --ready
  tail -f {adapter.log_path}

S3 is at {s3.endpoint_url} (access key {s3.access_key}, secret key {s3.secret_key}), bucket {BUCKET}.
Enter or Ctrl-C ends everything.
""")
    try:
        input()
    except (EOFError, KeyboardInterrupt):
        print()


def _words(error: BaseException) -> str:
    return f"{error.code().name}: {error.details()}" if isinstance(error, grpc.Call) else str(error)


if __name__ == "__main__":
    sys.exit(main())
