"""
The command line: `serve`, `settings`, `probe`, `layout`, `models`, `load`, `unload`.

Turns words into calls and outcomes into exit codes: 0 done, 1 it did not work, 2 wrong usage or
settings. Imports late: a probe starts every few seconds and needs neither storage nor Triton.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from adapter.errors import AdapterError
from adapter.settings import ProxySettings, Settings, SettingsError, explained
from adapter.settings.process import TelemetrySettings
from adapter.units import parse_endpoint, parse_number

PROGRAM = "modelmesh-triton-adapter"
OK, FAILED, USAGE = 0, 1, 2
CLEAR = "\033[2J\033[H"
"""A terminal is empty then, with the cursor at its top."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.run is None:
        parser.print_help(sys.stderr)
        return USAGE
    try:
        return int(chosen.run(chosen))
    except SettingsError as error:
        _complain("the settings cannot work:", *(f"  - {problem}" for problem in error.problems), f"`{PROGRAM} settings` explains them all")
        return USAGE
    except KeyboardInterrupt:  # which is how `--watch` ends
        return OK if getattr(chosen, "watch", None) else 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Lets ModelMesh load and unload models in an NVIDIA Triton server.")
    parser.add_argument("--version", dest="run", action="store_const", const=_version, help="print the version")
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND")
    verbs.add_parser("serve", help="run the adapter; its settings are environment variables").set_defaults(run=_serve)
    verbs.add_parser("settings", help="explain all settings").set_defaults(run=_settings)
    probe = verbs.add_parser("probe", help="ask a running adapter for its health; exit code 0 or 1")
    probe.add_argument("--ready", action="store_true", help="also ask whether ModelMesh can be served")
    probe.add_argument("--timeout", **SECONDS, default=5.0, help="longest time for all of it (default: 5)")
    hosts = "instead ask over HTTP, at METRICS_PORT, every address of this name; exit code 0 also when the name has none"
    probe.add_argument("--host", type=_read_by(parse_endpoint), metavar="NAME:PORT", help=hosts)
    probe.set_defaults(run=_probe)
    layout = verbs.add_parser("layout", help="show how a model's files would be laid out for Triton, before uploading them")
    layout.add_argument("path", type=Path, metavar="DIR", help="the model's directory, or its one file")
    layout.add_argument("--type", default="", help="model type: onnx, pytorch, python, ensemble, …")
    layout.add_argument("--model-id", metavar="ID", help="model id (default: the directory's name)")
    layout.add_argument("--schema", type=Path, metavar="FILE", help="the schema that schema_path will name")
    layout.add_argument("--top-model", metavar="NAME", help="of a bundle: the directory of the model that is asked for inference")
    layout.add_argument("--allow-decoupled", action="store_true", help="as the storage parameter adapter.allowDecoupled")
    layout.set_defaults(run=_layout)
    models = verbs.add_parser(
        "models",
        help="show what the adapter believes of each model, and what Triton and the volume have; exit code 0 when all agree, else 1; "
        "changes nothing, and works without a running adapter",
    )
    models.add_argument("--sizes", action="store_true", help="show how much memory each model has, and how that is known")
    models.add_argument("--drift", action="store_true", help="show only what disagrees")
    models.add_argument("--json", action="store_true", help="for programs")
    models.add_argument("--watch", **SECONDS, nargs="?", const=2.0, help="again and again, with this pause (default: 2), until Ctrl-C")
    models.set_defaults(run=_models)
    load = verbs.add_parser("load", help="let the running adapter load a model, as ModelMesh would, and ask it")
    load.add_argument("path", metavar="PATH", help="the model's path in the storage")
    load.add_argument("--type", default="", help="onnx, pytorch, python, …; default: what the model's config.pbtxt says")
    load.add_argument("--storage-key", metavar="KEY", help="entry of the storage config")
    load.add_argument("--config", type=Path, metavar="FILE", help="JSON object: storage parameters of this request")
    given = "then ask the model; for each input; default: zeros"
    load.add_argument("--infer", action="append", nargs="?", const="", metavar="INPUT=1,2,3", help=given)
    unload = verbs.add_parser("unload", help="let the running adapter unload a model")
    load.add_argument("--id", help="the model's name in Triton; default: its path")
    unload.add_argument("id", metavar="ID", help="the model's name in Triton")
    for verb in (load, unload):
        verb.set_defaults(run=_load_or_unload)
        verb.add_argument("--force", action="store_true", help="also beside a ModelMesh, which does not learn of it")
        verb.add_argument("--timeout", **SECONDS, default=600.0, help="longest time (default: 600)")
    return parser


def _read_by(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """The parser of an argument: what is wrong is told in the words of `parse`."""

    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


SECONDS: dict[str, Any] = {"type": _read_by(parse_number), "metavar": "SECONDS"}


def _serve(_chosen: argparse.Namespace) -> int:
    if os.getpid() == 1:  # the kernel drops what it has no handler for: a signal that comes before `app` has its own
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: os._exit(128 + number))
    settings = ProxySettings.from_env() if ProxySettings.are_meant() else Settings.from_env()
    gc.disable()  # until all is imported and built: a collection would look through it again and again (8 ms)
    from adapter import app  # noqa: PLC0415 - everything heavy hangs on it

    return app.serve(settings)


def _settings(_chosen: argparse.Namespace) -> int:
    """Of each a line of name, unit and default, and one of meaning."""
    for about, meaning in explained():
        default = "" if about["default"] is None else f", default {about['default'].replace(',', ', ')}"
        words = meaning.replace("`", "").replace("**", "")
        _say(f"{about['env']}  ({about['kind'].unit}{default})\n    {words}\n")
    return OK


def _probe(chosen: argparse.Namespace) -> int:
    from adapter.verbs import probe  # noqa: PLC0415 - only for this verb

    is_well, line = probe.ask(chosen.host, ready=chosen.ready, timeout_seconds=chosen.timeout)
    _say(f"{line}\n")
    return OK if is_well else FAILED


def _layout(chosen: argparse.Namespace) -> int:
    from adapter.verbs import layout  # noqa: PLC0415 - only for this verb

    try:
        fits, text = layout.examine(chosen)
    except (AdapterError, OSError) as error:
        _complain(str(error) if isinstance(error, AdapterError) else f"{error.filename} cannot be read: {error.strerror}")
        return USAGE
    _say(text)
    return OK if fits else FAILED


def _models(chosen: argparse.Namespace) -> int:
    from adapter.telemetry import logs  # noqa: PLC0415 - only for this verb
    from adapter.verbs import models, tables  # noqa: PLC0415 - brings gRPC

    logs.configure(TelemetrySettings(metrics_port=0, log_level="error", log_format="text"), sys.stderr)
    while True:
        seen = models.look()
        if chosen.json:
            text = models.as_json(seen, drift_only=chosen.drift)
        else:
            text = tables.sizes(seen) if chosen.sizes else models.text(seen, drift_only=chosen.drift)
        has_reader = _say(f"{CLEAR}{text}" if chosen.watch and sys.stdout.isatty() else text)
        if not chosen.watch or not has_reader:
            return OK if seen["agrees"] else FAILED
        time.sleep(chosen.watch)


def _load_or_unload(chosen: argparse.Namespace) -> int:
    from adapter.verbs import load  # noqa: PLC0415 - brings gRPC

    try:
        for text in load.run(chosen):
            _say(text)
    except AdapterError as error:
        _complain(str(error))
        return FAILED
    return OK


def _version(_chosen: argparse.Namespace) -> int:
    from importlib.metadata import version  # noqa: PLC0415 - reads the installed package

    _say(f"{PROGRAM} {version(PROGRAM)}\n")
    return OK


def _say(text: str) -> bool:
    """Whether there is still a reader: `| head` ends after its lines."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter's own last flush must not complain either
        return False
    return True


def _complain(*lines: str) -> None:
    """What a peer or a file says may hold control characters."""
    for line in lines:
        sys.stderr.write(f"{PROGRAM}: {''.join(letter if letter.isprintable() else ' ' for letter in line)}\n")
