"""
One hostile model, listed by the store and planned, in a process of its own: `python -m tests.security.layout_child CASE FOLDER`.

Prints one line of JSON: how it ended, in which words, and by how many MiB the process grew. Cases are
functions here, by name. The address space is bounded: what grows without end fails, and hurts nobody else.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from adapter.errors import AdapterError
from adapter.layout import rules
from adapter.lifecycle import fetching
from adapter.model import Layout
from adapter.volume.volume import Volume
from adapter.workers import QUICK_ITEMS
from tests.builders import a_spec
from tests.security import unmeasured
from tests.unit.storage.rigs import make_rig, opened

MANY = 100_000
DEPTH = 400
ADDRESS_SPACE = 6 * 2**30
CONFIG = "config.pbtxt"

Objects = dict[str, bytes]


def _files(paths: list[str], **more: bytes) -> Objects:
    return dict.fromkeys(paths, b"") | {CONFIG if name == "config" else name: content for name, content in more.items()}


def _bundle(config: bytes) -> Objects:
    return {f"d{number}/{what}": content for number in range(100) for what, content in ((CONFIG, config), ("1/model.py", b""))}


def _schema(text: bytes) -> Objects:
    return {"model.pt": b"", "schema.json": text}


CASES: dict[str, tuple[str, str, Callable[[], Objects]]] = {
    "many_files_in_one_version": ("python", "layout", lambda: _files(["1/model.py", *(f"1/f{number}" for number in range(MANY - 1))])),
    "many_files_at_the_top": ("onnx", "could each be the model", lambda: _files([f"f{number}.onnx" for number in range(MANY)])),
    "many_directories": ("", "layout", lambda: _files([f"d{number}/x" for number in range(MANY)])),
    "many_versions": ("python", "layout",
        lambda: _files([f"{number}/model.py" for number in range(MANY - 1)], config=b'backend: "python"\nversion_policy { all { } }')),
    "many_names_that_look_like_versions": ("python", "Triton would misread directories 0x",
        lambda: _files([f"{number}x/model.py" for number in range(MANY - 1)], config=b'backend: "python"')),
    "many_models_of_a_bundle": ("ensemble", "is described by its config.pbtxt",
        lambda: _files([f"d{number}/{what}" for number in range(MANY // 2) for what in (CONFIG, "1/model.py")])),
    "many_files_at_the_end_of_many_levels": ("onnx", "no file could be told to be the onnx model",
        lambda: _files([f"{'a/' * DEPTH}f{number}" for number in range(MANY // 5)])),
    "one_model_at_the_end_of_many_levels": ("onnx", "layout", lambda: _files(["a/" * DEPTH + "model.onnx"])),
    "many_levels_for_each_of_many_files": ("", "is it really one model?",
        lambda: _files([f"{number}x/{'a/' * DEPTH}f" for number in range(MANY // 5)])),
    "versions_and_directories_with_the_same_content": ("python", "there is no model.py",
        lambda: _files([f"{prefix}{number}/model.py" for number in range(MANY // 2) for prefix in ("", "v")])),
    "names_in_two_forms_of_unicode_and_two_cases": ("onnx", "could each be the model",
        lambda: _files(["caf\u00e9.onnx", "cafe\u0301.onnx", "CAF\u00c9.onnx", "Caf\u00e9.onnx"])),
    "control_characters_and_long_names": ("onnx", "could each be the model",
        lambda: _files(["a\x01\x1b[31m\r\nb.onnx", "\u202egpj.exe.onnx", "x" * 255, "\U0001f600" * 63])),
    "a_name_that_is_too_long": ("onnx", "has a segment of more than 255 bytes", lambda: _files(["\U0001f600" * 64])),
    "half_a_surrogate_pair": ("onnx", "half a surrogate pair", lambda: _files(["\ud800.onnx"])),
    "a_file_that_is_a_directory_too": ("onnx", "both as an object and as a folder",
        lambda: _files(["model.onnx", "model.onnx/x", "model.onnx.bak"])),
    "a_config_nested_without_end": ("python", "messages are nested more than 64 levels deep",
        lambda: _files(["1/model.py"], config=b"a {" * (2**20 // 3))),
    "a_config_of_nothing_but_names": ("python", "layout", lambda: _files(["1/model.py"], config=b'name:""' * (2**20 // 7))),
    "a_config_of_nothing_but_tensors": ("python", "layout", lambda: _files(["1/model.py"], config=b"input{}" * (2**20 // 7))),
    "a_config_that_is_too_long": ("python", "config.pbtxt has 1048577 bytes, more than 1048576",
        lambda: _files(["1/model.py"], config=b"#" * (2**20 + 1))),
    "a_bundle_of_long_configs": ("ensemble", "of this bundle have 104857200 bytes, more than 4194304",
        lambda: _bundle(b'name:""' * (2**20 // 7))),
    "a_bundle_of_configs_that_are_just_short_enough": ("ensemble", "any of d0, d1",
        lambda: _bundle(b'backend:"python"' + b'\ninput{}' * (2**20 * 4 // 100 // 8 - 10))),
    "a_schema_of_empty_objects": ("pytorch", "layout", lambda: _schema(b'{"x":[' + b",".join([b"{}"] * (4 * 2**20 // 3 - 10)) + b"]}")),
    "a_schema_of_nothing_but_brackets": ("pytorch", "recursion depth exceeded", lambda: _schema(b"[" * (4 * 2**20))),
    "a_schema_of_many_tensors": ("pytorch", "the config.pbtxt that the schema makes has",
        lambda: _schema(b'{"inputs":[' + b",".join(b'{"name":"%06d","datatype":"FP32","shape":[1]}' % n for n in range(80_000)) + b"]}")),
    "a_schema_with_one_long_number": ("pytorch", "Exceeds the limit (4300 digits)",
        lambda: _schema(b'{"inputs":[{"name":"x","datatype":"FP32","shape":[' + b"1" * (4 * 2**20 - 100) + b"]}]}")),
}  # fmt: skip
"""
Name → model type, how it ends (in a layout or in these words), and what makes the objects below the model's path; `schema.json` is its
schema, and lies beside it.
"""


async def _outcome(name: str, folder: Path) -> dict[str, object]:
    model_type, _, make = CASES[name]
    objects = make()
    schema = objects.pop("schema.json", None)
    volume = Volume(folder / "models" / "_triton_models", folder / "models" / "_adapter")
    volume.claim()
    rig = make_rig(folder, volume)
    rig.bucket._page_objects = MANY  # the fake sorts all of its keys for each page
    for path, content in objects.items():
        rig.bucket.put(f"m/{path}", content)
    if schema is not None:
        rig.bucket.put("schema.json", schema)
    spec = a_spec("m", model_id="m", model_type=model_type, storage_key="default", schema_path=None if schema is None else "schema.json")
    planned_in: set[str] = set()
    plan = rules.plan

    def watched(*args: object) -> Layout:
        planned_in.add(threading.current_thread().name)
        return plan(*args)  # type: ignore[arg-type]

    fetching.rules.plan = watched  # type: ignore[attr-defined, assignment]
    before = unmeasured.forget_peak()
    made = fetching.Fetching(mock.Mock(), mock.Mock(), 30.0)
    try:
        layout = await made.planned(spec, await opened(rig.store, spec))
        told: dict[str, object] = {"words": "layout", "files": len(layout.files)}
    except AdapterError as error:
        told = {"class": type(error).__name__, "words": error.text}
    finally:
        made.workers.close()
        rig.store.close()
        volume.close()
    is_large = len(objects) > QUICK_ITEMS
    return told | {"grown": unmeasured.mib("VmHWM") - before, "on_loop": is_large and threading.main_thread().name in planned_in}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    print(json.dumps(asyncio.run(_outcome(sys.argv[1], Path(sys.argv[2])))))
