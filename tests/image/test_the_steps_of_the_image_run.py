"""The builder stages of the Dockerfile, run here: their product starts, as anybody, where nothing can be written; the SBOM is true."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from scripts import lock
from tests.image.dockerfile import SAGEMAKER, stages
from tests.image.steps import build, stand_on
from tests.real.anybody import as_anybody, check_permitted
from tests.real.children import Child, bare_environment
from tests.real.ports import free_ports

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]  # what all tests share counts in the first one
SBOM = "sbom/modelmesh-triton-adapter.cdx.json"
IMPORT_ALL = """
import importlib, pkgutil, sys, adapter
def failed(name): raise
names = [m.name for m in pkgutil.walk_packages(adapter.__path__, "adapter.", onerror=failed) if not m.name.endswith("__main__")]
for name in names: importlib.import_module(name)
print(len(names), *sorted({name.partition(".")[0] for name in sys.modules} & {"rapidjson", "ml_dtypes", "pip", "setuptools"}))
"""
IMPORT_FRONTS = """
import importlib, sys
for name in "app", "storage.stores.s3", "storage.stores.http": importlib.import_module(f"adapter.{name}")
before = {name.partition(".")[0] for name in sys.modules} & {"aiohttp", "numpy", "orjson"}
for name in "adapter.fronts.edge", "aiohttp", "numpy", "orjson": importlib.import_module(name)
print(*sorted(before))
"""


@pytest.fixture(scope="module", params=list(lock.VARIANTS))
def built(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder that everybody can enter."""
    with tempfile.TemporaryDirectory(prefix="image-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        build(folder, {"VARIANT": request.param})
        yield folder


@pytest.fixture
def environment(built: Path) -> dict[str, str]:
    """As the image sets it, over little."""
    (built / "models").mkdir(exist_ok=True)
    (built / "models").chmod(0o777)
    port, metrics = map(str, free_ports(2))
    path = f"{built}/opt/adapter/bin:{os.environ['PATH']}"
    settings = {"CONTAINER_MEM_REQ_BYTES": "2Gi", "ADAPTER_PORT": port, "METRICS_PORT": metrics, "ROOT_MODEL_DIR": str(built / "models")}
    return bare_environment() | settings | {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def packages(built: Path) -> dict[str, str]:
    (site,) = (built / "opt/adapter/lib").glob("python*/site-packages")
    return {canonicalize_name(each.name): each.version for each in distributions(path=[str(site)])}


def test_it_holds_the_list_and_the_adapter_and_nothing_else(built: Path, request: pytest.FixtureRequest) -> None:
    variant = request.node.callspec.params["built"]
    listed = set(re.findall(r"^([\w.-]+)==", lock.path_of(variant).read_text(), re.MULTILINE))

    assert set(packages(built)) == {*listed, "modelmesh-triton-adapter"}
    assert not [path for path in (built / "opt/adapter/bin").iterdir() if path.name.startswith("pip")]


def test_every_module_can_be_imported_without_what_was_left_out(built: Path, request: pytest.FixtureRequest) -> None:
    """Of `full` all modules, of `s3` all that serve its stores, and the HTTP fronts."""
    python = built / "opt/adapter/bin/python"
    if request.node.callspec.params["built"] == "full":
        done = subprocess.run([python, "-I", "-c", IMPORT_ALL], capture_output=True, text=True, check=False)
        count, *unwanted = done.stdout.split() or ["0"]
        assert (done.stderr, unwanted) == ("", [])
        assert int(count) > 150
    done = subprocess.run([python, "-I", "-c", IMPORT_FRONTS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [], "imported without a front"


def test_everything_is_compiled_and_stays_so(built: Path, environment: dict[str, str]) -> None:
    lib = built / "opt/adapter/lib"
    sources = [path for path in lib.rglob("*.py") if path.stat().st_size]
    compiled = {path.parent.parent / path.name.split(".")[0] for path in lib.rglob("*.pyc")}
    before = sorted(lib.rglob("*"))

    subprocess.run([built / "opt/adapter/bin/modelmesh-triton-adapter", "settings"], env=environment, capture_output=True, check=True)

    assert len(sources) > 500
    assert [path for path in sources if path.with_suffix("") not in compiled] == []
    assert sorted(lib.rglob("*")) == before


def test_the_sbom_names_what_is_installed_with_its_licence(built: Path) -> None:
    bom = json.loads((built / SBOM).read_text())
    components = {canonicalize_name(each["name"]): each for each in bom["components"]}
    schema = "from cyclonedx.validation.json import JsonStrictValidator as J; from cyclonedx.schema import SchemaVersion as S; import sys"
    check = f"{schema}; print(J(S.V1_6).validate_str(sys.stdin.read()))"

    valid = subprocess.run([built / "tools/bin/python", "-c", check], input=json.dumps(bom), capture_output=True, text=True, check=True)
    broken = json.dumps(bom | {"components": [{"name": "nameless type"}]})
    invalid = subprocess.run([built / "tools/bin/python", "-c", check], input=broken, capture_output=True, text=True, check=True)

    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    assert {name: each["version"] for name, each in components.items()} == packages(built)
    assert [name for name, each in components.items() if not each.get("licenses")] == []
    assert {each["purl"] for name, each in components.items() if name in ("grpcio", "botocore")} == {
        f"pkg:pypi/{name}@{packages(built)[name]}" for name in ("grpcio", "botocore")
    }
    assert valid.stdout == "None\n"
    assert "type" in invalid.stdout
    assert [name for name, each in components.items() if str(built) in json.dumps(each)] == ["modelmesh-triton-adapter"]  # its wheel


@pytest.mark.parametrize("words", [["modelmesh-triton-adapter", "probe"], ["python", "-m", "adapter", "probe"]], ids=" ".join)
def test_anybody_can_serve_and_probe_where_nothing_can_be_written(built: Path, environment: dict[str, str], words: list[str]) -> None:
    """And SIGTERM ends it in order."""
    check_permitted(built / "models", read_only=True)
    bin_folder = built / "opt/adapter/bin"
    place = as_anybody(built / "models", "022", read_only=True)
    adapter = Child("adapter", [*place, bin_folder / "modelmesh-triton-adapter", "serve"], env=environment)
    try:

        def is_alive() -> bool:
            command = [*place, str(bin_folder / words[0]), *words[1:]]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            return (done.returncode, done.stdout) == (0, "alive\n")

        adapter.wait_until(is_alive, "alive", 30)
        adapter.signal(signal.SIGTERM)
        assert adapter.wait(30) == 0
    finally:
        adapter.kill()
    assert all(word not in adapter.log_text() for word in ("Traceback", "Read-only", "Permission denied"))


def test_the_image_with_triton_has_the_adapter_over_its_own_python(built: Path, environment: dict[str, str]) -> None:
    """The last test of a build: it leaves of the adapter's image what the other one copies."""
    stand_on(built, SAGEMAKER)
    program = built / "usr/local/bin/modelmesh-triton-adapter"
    (port,) = free_ports(1)
    own = {"TRITON_COMMAND": "sh -c 'exit 9'", "SAGEMAKER_BIND_TO_PORT": str(port)}
    settings = environment | stages(SAGEMAKER.read_text())[1][-1].pairs("ENV") | own

    done = subprocess.run([program, "--version"], env=environment, capture_output=True, text=True, check=True)
    adapter = Child("adapter", [program, "serve"], env=settings)

    assert re.fullmatch(r"modelmesh-triton-adapter \d+\.\d+\.\d+\n", done.stdout)
    assert [path.name for path in (built / "opt/adapter/bin").iterdir() if path.name.startswith("pip")] == []
    assert os.access(built / "usr/share/sbom/modelmesh-triton-adapter.cdx.json", os.R_OK)
    try:
        assert adapter.wait(60) == 9, adapter.log_text()
    finally:
        adapter.kill()
