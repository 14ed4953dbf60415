"""Compiles proto/ into adapter/_pb before packages are collected, in a wheel and in an editable install alike."""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Command, setup
from setuptools.command.build import build

TOP = Path(__file__).resolve().parent
PACKAGE = TOP / "adapter" / "_pb"
HEADER = '"""Messages and stubs of `mmesh.ModelRuntime`, made from proto/ by setup.py. Do not edit."""\n'


class BuildProto(Command):
    """Flat, so that the modules import each other as siblings of whatever package holds them."""

    description = "compile proto/ into adapter/_pb"
    user_options = []

    def initialize_options(self): ...
    def finalize_options(self): ...

    def run(self):
        scripts = sysconfig.get_path("scripts")
        plugins = [f"--plugin={name}={shutil.which(name) or Path(scripts, name)}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]
        outputs = [f"--{kind}_out={PACKAGE}" for kind in ("python", "grpc_python")]
        outputs += [f"--{kind}_out=quiet:{PACKAGE}" for kind in ("mypy", "mypy_grpc")]
        sources = [path.name for path in sorted((TOP / "proto").glob("*.proto"))]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I.", *plugins, *outputs, *sources], cwd=TOP / "proto", check=True)
        for path in PACKAGE.glob("*_pb2*.py*"):
            path.write_text(re.sub(r"^import (\w+_pb2)\b", r"from . import \1", path.read_text(), flags=re.MULTILINE))


class Build(build):
    sub_commands = [("build_proto", None), *build.sub_commands]


PACKAGE.mkdir(exist_ok=True)  # `packages = find:` looks before anything is built
(PACKAGE / "__init__.py").write_text(HEADER)
setup(cmdclass={"build": Build, "build_proto": BuildProto})
