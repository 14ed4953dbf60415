"""One reader of the environment; every mistake at once; what ModelMesh would refuse is refused by us, with the arithmetic."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

import adapter.settings as settings_package
from adapter.settings import ProxySettings, Settings, SettingsError, explained, read_group
from adapter.settings.capacity import CapacitySettings, memory_bytes
from adapter.settings.kinds import AUTO
from adapter.units import Endpoint

MIB = 2**20
ENOUGH = {"CONTAINER_MEM_REQ_BYTES": "8Gi"}


def problems_of(variables: Mapping[str, str]) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        Settings.from_env(variables)
    return caught.value.problems


def capacity(**variables: str) -> CapacitySettings:
    return Settings.from_env({**ENOUGH, **variables}).capacity


def test_only_the_memory_is_required() -> None:
    """Everything else has a default, most of them the Go adapter's."""
    settings = Settings.from_env(ENOUGH)

    assert settings.spi.listen == Endpoint(host="localhost", port=8085)
    assert settings.triton.reach.target == "localhost:8001"
    assert settings.capacity.capacity_bytes == 8 * 1024 * MIB - 256 * MIB
    assert settings.capacity.default_model_bytes == 1_000_000
    assert settings.capacity.load_timeout_ms == 30_000
    assert settings.capacity.multiplier == 1.25
    assert settings.volume.repository_dir == Path("/models/_triton_models")
    assert settings.volume.cache_dir == Path("/models/_adapter")
    assert settings.pull.config_dir == Path("/storage-config")
    assert settings.pull.embedded is None
    assert settings.telemetry.metrics_port == 9464


def test_environment_of_the_go_adapter_is_understood() -> None:
    """As the controller sets it for a built-in adapter; a running install swaps the image."""
    settings = Settings.from_env(
        {
            "ADAPTER_PORT": "8085", "RUNTIME_PORT": "8001", "RUNTIME_DATA_ENDPOINT": "port:8001",
            "CONTAINER_MEM_REQ_BYTES": "1073741824", "MEM_BUFFER_BYTES": "134217728", "LOADTIME_TIMEOUT": "90000",
            "LOADING_CONCURRENCY": "2", "LIMIT_PER_MODEL_CONCURRENCY": "", "USE_EMBEDDED_PULLER": "true",
            "RUNTIME_VERSION": "23.04-py3", "LOG_LEVEL": "debug", "PORT": "8084", "MODEL_SERVER_ENDPOINT": "port:8085",
        }
    )  # fmt: skip

    assert settings.capacity.capacity_bytes == 939524096
    assert settings.capacity.max_loading == 2
    assert settings.capacity.load_timeout_ms == 90_000
    assert settings.capacity.max_concurrency == 0
    assert settings.capacity.runtime_version == "23.04-py3"
    assert settings.pull.embedded is True


def test_a_limit_of_requests_is_a_number_or_auto() -> None:
    assert read_group(CapacitySettings, {"CONTAINER_MEM_REQ_BYTES": "1Gi", "LIMIT_PER_MODEL_CONCURRENCY": "Auto"}).max_concurrency == AUTO
    with pytest.raises(SettingsError, match="LIMIT_PER_MODEL_CONCURRENCY"):
        read_group(CapacitySettings, {"CONTAINER_MEM_REQ_BYTES": "1Gi", "LIMIT_PER_MODEL_CONCURRENCY": "-1"})


@pytest.mark.parametrize("version", ["23.04-py3@sha256:0af", "5000/nvidia/tritonserver:23.04-py3", "5000/tritonserver", ""])
def test_whatever_follows_the_first_colon_of_an_image_is_a_version(version: str) -> None:
    """As the controller cuts it: of `host:5000/x:tag`, of `x:tag@sha256:…`. Triton tells its own version anyway."""
    assert Settings.from_env(ENOUGH | {"RUNTIME_VERSION": version}).capacity.runtime_version == (version or "v1")


@pytest.mark.parametrize("name", ["ADAPTER_PORT", "RUNTIME_PORT", "METRICS_PORT"])
@pytest.mark.parametrize("link", ["tcp://10.96.3.7:9090", "udp://10.96.3.7:53", "tcp://[fd00::7]:80"])
def test_a_service_of_that_name_is_not_meant(name: str, link: str) -> None:
    """The kubelet tells every pod of the namespace of a Service called `metrics`; the pods of a runtime cannot turn that off."""
    assert Settings.from_env(ENOUGH | {name: link}) == Settings.from_env(ENOUGH)
    with pytest.raises(SettingsError, match=f"{name}: "):
        Settings.from_env(ENOUGH | {name: "tcp://10.96.3.7"})


@pytest.mark.parametrize("text", ["", None])
def test_empty_variable_is_absent(text: str | None) -> None:
    """Manifests pass on empty values."""
    variables = ENOUGH if text is None else {**ENOUGH, "ADAPTER_PORT": text, "CACHE_DIR": text, "LOG_LEVEL": text}

    assert Settings.from_env(variables) == Settings.from_env(ENOUGH)


@pytest.mark.parametrize(("variables", "count"), [({}, 5), ({"REQUEST_ENDPOINTS_DENIED": ""}, 0), ({"REQUEST_ENDPOINTS_DENIED": "::1"}, 1)])
def test_networks_may_be_none_at_all(variables: dict[str, str], count: int) -> None:
    """An empty text is a value of this setting: everything may be dialled."""
    assert len(Settings.from_env({**ENOUGH, **variables}).pull.denied_networks) == count


@pytest.mark.parametrize(
    ("cache", "own"),
    [("", set()), ("/models/_adapter", set()), ("/models/cache/of/triton", {"cache"}), ("/elsewhere", set())],
)
def test_names_of_our_folders_are_reserved(cache: str, own: set[str]) -> None:
    """What lies directly below the root, and the default names whatever is set."""
    settings = Settings.from_env({**ENOUGH, "CACHE_DIR": cache})

    assert settings.volume.reserved_ids == {"_triton_models", "_adapter"} | own


def test_endpoint_beats_its_port() -> None:
    """And metrics that are off collide with no other port."""
    settings = Settings.from_env(
        {
            **ENOUGH, "ADAPTER_PORT": "1", "ADAPTER_ENDPOINT": "unix:/run/mm.sock", "RUNTIME_ENDPOINT": "unix:/run/t.sock:8001",
            "METRICS_PORT": "0",
        }
    )  # fmt: skip

    assert settings.spi.listen.target == "unix:/run/mm.sock"
    assert settings.triton.reach.target == "unix:/run/t.sock:8001"


@pytest.mark.parametrize(
    ("variables", "port"),
    [
        ({}, 0),
        ({"SAGEMAKER_MULTI_MODEL": "false"}, 0),
        ({"SAGEMAKER_MULTI_MODEL": "true"}, 8080),
        ({"SAGEMAKER_BIND_TO_PORT": "8081"}, 8081),
        ({"SAGEMAKER_MULTI_MODEL": "true", "SAGEMAKER_BIND_TO_PORT": "8081"}, 8081),
        ({"SAGEMAKER_MULTI_MODEL": "true", "SAGEMAKER_BIND_TO_PORT": "8081", "SAGEMAKER_PORT": "9"}, 9),
        ({"SAGEMAKER_MULTI_MODEL": "true", "SAGEMAKER_PORT": "0"}, 0),
    ],
)
def test_the_platforms_own_variables_turn_its_front_on(variables: dict[str, str], port: int) -> None:
    """Ours wins, off included."""
    settings = Settings.from_env({**ENOUGH, **variables})

    assert (settings.sagemaker.port, settings.has_fronts) == (port, port > 0)


def test_without_modelmesh_there_is_no_endpoint_for_it() -> None:
    """Unless one is named all the same."""
    assert Settings.from_env({**ENOUGH, "ADAPTER_PORT": "0", "SAGEMAKER_PORT": "8080"}).spi.listen is None
    assert str(Settings.from_env({**ENOUGH, "ADAPTER_PORT": "0", "ADAPTER_ENDPOINT": "unix:/a"}).spi.listen) == "unix:/a"


@pytest.mark.parametrize(("announced_ms", "budget_seconds"), [("100", 0.09), ("10000", 9.0), ("30000", 28.0), ("600000", 598.0)])
def test_own_budget_ends_before_the_announced_timeout(announced_ms: str, budget_seconds: float) -> None:
    """So that our error, which says what was slow, arrives first."""
    assert capacity(LOADTIME_TIMEOUT=announced_ms).budget_seconds == pytest.approx(budget_seconds)


def test_every_setting_explains_itself() -> None:
    """Name, unit, default that can be read, meaning; no name twice."""
    names = [about["env"] for about, _ in explained()]

    assert len(set(names)) == len(names) >= 20
    for about, meaning in explained():
        assert about["kind"].unit
        assert meaning == meaning.strip() != ""
        if about["default"] is not None:
            about["kind"].parse(about["default"])


@pytest.mark.parametrize(
    ("memory", "blocks", "budget"), [("8Gi", 1 << 30, 10 << 30), ("8Gi", 10 << 18, 8 << 30), ("1Gi", 10 << 18, 5 << 28)]
)
def test_the_default_budget_of_the_volume_is_bounded_by_memory_and_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: str, blocks: int, budget: int
) -> None:
    """1.25 times the memory, at most 80 % of the file system."""
    settings = Settings.from_env({**ENOUGH, "CONTAINER_MEM_REQ_BYTES": memory, "ROOT_MODEL_DIR": str(tmp_path)})
    with pytest.raises(FileNotFoundError):
        _ = settings.disk_budget_bytes
    settings.volume.cache_dir.mkdir()
    real = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((4096, 4096, blocks, *real[3:])))

    assert settings.disk_budget_bytes == budget


@pytest.mark.parametrize(("text", "budget"), [("0", 0), ("54Gi", 54 << 30)])
def test_a_budget_that_is_set_is_taken_as_it_is(text: str, budget: int) -> None:
    """Whatever the disk; the folders need not be there."""
    assert Settings.from_env({**ENOUGH, "CACHE_MAX_BYTES": text, "ROOT_MODEL_DIR": "/nowhere"}).disk_budget_bytes == budget


@pytest.mark.parametrize("port", ["SAGEMAKER_PORT"])
def test_a_front_without_modelmesh_has_the_memory_of_its_container(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given counts all the same; ModelMesh and its REST proxy's port alone must say it."""
    monkeypatch.setattr(settings_package, "memory_bytes", lambda: 16 << 30)
    for absent in ({}, {"CONTAINER_MEM_REQ_BYTES": ""}):
        assert Settings.from_env({port: "8080", **absent}).capacity.container_memory_bytes == 16 << 30
        assert "CONTAINER_MEM_REQ_BYTES is missing" in problems_of({port: "0", **absent})[0]
    assert Settings.from_env({port: "8080", **ENOUGH}).capacity.container_memory_bytes == 8 << 30
    assert "CONTAINER_MEM_REQ_BYTES is missing" in problems_of({port: "8080", "CONTAINER_MEM_REQ_BYTES": "0"})[0]
    assert "CONTAINER_MEM_REQ_BYTES is missing" in problems_of({"V2_REST_PORT": "8080"})[0]


PROXY = {"REST_PROXY_LISTEN_PORT": "8008"}


@pytest.mark.parametrize(
    ("more", "are_meant"),
    [
        ({}, True),
        ({"V2_REST_PORT": "8080"}, True),
        ({"CONTAINER_MEM_REQ_BYTES": ""}, True),
        ({"REST_PROXY_LISTEN_PORT": ""}, False),
        ({"REST_PROXY_LISTEN_PORT": "0"}, False),
        ({"CONTAINER_MEM_REQ_BYTES": "1Gi"}, False),
        ({"SAGEMAKER_PORT": "8081"}, False),
        ({"TRITON_COMMAND": "tritonserver"}, False),
    ],
)
def test_the_proxys_port_and_nothing_of_an_adapter_is_the_proxy_alone(more: dict[str, str], are_meant: bool) -> None:
    assert ProxySettings.are_meant({**PROXY, **more}) is are_meant


def test_the_proxys_variables_turn_v2_on_before_modelmesh_and_v2s_own_win() -> None:
    for read in (ProxySettings.from_env, lambda env: Settings.from_env({**ENOUGH, **env})):
        v2 = read(PROXY).v2
        assert (v2.port, str(v2.endpoint)) == (8008, "localhost:8033")
        v2 = read({**PROXY, "REST_PROXY_GRPC_PORT": "9", "V2_REST_PORT": "8080"}).v2
        assert (v2.port, str(v2.endpoint)) == (8080, "localhost:9")
        assert str(read({**PROXY, "V2_REST_ENDPOINT": "port:7"}).v2.endpoint) == "localhost:7"
    assert Settings.from_env({**ENOUGH, "REST_PROXY_GRPC_PORT": "9"}).v2 == Settings.from_env(ENOUGH).v2


def test_the_proxys_certificate_is_that_of_its_port_where_no_other_is_set() -> None:
    files = {"MM_TLS_KEY_CERT_PATH": "/tls/crt", "MM_TLS_PRIVATE_KEY_PATH": "/tls/key"}
    http = ProxySettings.from_env({**PROXY, **files}).http
    assert (http.tls_cert, http.tls_key) == (Path("/tls/crt"), Path("/tls/key"))
    own = {"HTTP_TLS_CERT": "/own/crt", "HTTP_TLS_KEY": "/own/key"}
    assert ProxySettings.from_env({**PROXY, **files, **own}).http.tls_cert == Path("/own/crt")
    assert Settings.from_env({**ENOUGH, **PROXY, **files}).http.tls_cert is None
    with pytest.raises(SettingsError) as failed:
        ProxySettings.from_env({**PROXY, "REST_PROXY_USE_TLS": "true", "REST_PROXY_GRPC_PORT": "x"})
    assert failed.value.problems[0].startswith("REST_PROXY_GRPC_PORT")


@pytest.mark.parametrize(
    ("variables", "loads"),
    [
        ({}, 1),
        ({"V2_REST_PORT": "8080"}, 3),
        ({"SAGEMAKER_PORT": "8080", "LOADING_CONCURRENCY": "8"}, 8),
        ({"V2_REST_PORT": "8080", "TRITON_LOAD_THREADS": "1"}, 1),
        ({"SAGEMAKER_PORT": "8080", "TRITON_LOAD_THREADS": "16", "LOADING_CONCURRENCY": "2"}, 15),
    ],
)
def test_with_a_front_one_thread_of_triton_is_spared_and_no_more(variables: dict[str, str], loads: int) -> None:
    assert Settings.from_env({**ENOUGH, **variables}).loads_at_once == loads


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"memory.max": "1073741824\n"}, 1 << 30),
        ({"memory/memory.limit_in_bytes": "1073741824\n"}, 1 << 30),
        ({"memory.max": "max\n"}, None),
        ({"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ({"memory.max": "0"}, None),
        ({}, None),
    ],
)
def test_the_memory_of_a_container_is_its_limit_or_the_machines(tmp_path: Path, files: dict[str, str], limit: int | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory_bytes(tmp_path) == (limit or machine)
    assert 0 < memory_bytes() <= machine
