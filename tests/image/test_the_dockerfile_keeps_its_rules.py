"""hadolint's rules, and ours."""

from __future__ import annotations

import configparser
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from adapter.settings import Settings
from tests.image.dockerfile import DOCKERFILE, SAGEMAKER, stages
from tests.real.children import TOP

TEXT = DOCKERFILE.read_text()
SETUP = configparser.ConfigParser()
SETUP.read(TOP / "setup.cfg")
SECRET = re.compile(r"SECRET|TOKEN|PASSWORD|CREDENTIAL", re.IGNORECASE)
HADOLINT = Path(sysconfig.get_path("scripts"), "hadolint")


def hadolint(text: str) -> subprocess.CompletedProcess[str]:
    command = [str(HADOLINT), "--no-color", "--failure-threshold", "info", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("text", [TEXT, SAGEMAKER.read_text()], ids=["adapter", "sagemaker"])
def test_hadolint_finds_nothing_and_nothing_is_ignored(text: str) -> None:
    done = hadolint(text)

    assert (done.returncode, done.stdout) == (0, "")
    assert "hadolint" not in text
    assert not [*TOP.glob(".hadolint.y*"), *(TOP / "deploy").glob(".hadolint.y*")]


@pytest.mark.parametrize("text", [TEXT, SAGEMAKER.read_text()], ids=["adapter", "sagemaker"])
def test_the_dockerfiles_keep_our_rules(text: str) -> None:
    """Beside hadolint's: a numeric user, since runAsNonRoot refuses names; packages by their hashes; no secret that is in the image."""
    _, found = stages(text)
    lines = [each for stage in found for each in stage.instructions]
    (user,) = found[-1].last("USER")
    assert re.fullmatch(r"[1-9]\d*(:\d+)?", user)
    installs = [each.value for each in lines if each.word == "RUN" and re.search(r"pip (--\S+ \S+ )?install", each.value)]
    assert [line for line in installs if "--require-hashes" not in line and "--no-index" not in line] == []
    assert not [each for each in lines if each.word in ("ENV", "ARG") and SECRET.search(each.value)]


def test_labels_say_what_setup_cfg_says() -> None:
    labels = stages(TEXT)[1][-1].pairs("LABEL")

    assert labels["org.opencontainers.image.title"] == SETUP["metadata"]["name"]
    assert labels["org.opencontainers.image.version"] == SETUP["metadata"]["version"]
    assert labels["org.opencontainers.image.licenses"] == SETUP["metadata"]["license"]
    assert labels["org.opencontainers.image.description"] == SETUP["metadata"]["description"]
    assert not [value for value in labels.values() if "://" in value]


def test_what_is_started_exists() -> None:
    """Entry point, probe, and the files that the controller starts in an image."""
    (program,) = (line.split("=")[0].strip() for line in SETUP["options.entry_points"]["console_scripts"].splitlines() if line)
    final = stages(TEXT)[1][-1]

    assert final.last("ENTRYPOINT") == [program]
    assert final.last("CMD") == ["serve"]
    assert [each.value for each in final.all("HEALTHCHECK")] == [f'CMD ["{program}", "probe"]']
    (copied,) = (each for each in final.all("COPY") if each.words()[-1] == "/opt/app/")
    assert copied.flags["chmod"] == "0755"
    for source in copied.words()[:-1]:
        lines = (TOP / source).read_text().splitlines()
        assert lines[0] == "#!/bin/sh"
    assert f"exec {program} serve" in (TOP / "deploy/image/triton-adapter").read_text().splitlines()


def test_the_context_has_what_is_copied_and_little_else() -> None:
    """A rule that begins with ! lets something in; all else stays out, secrets of a working tree too."""
    lines = [line for line in (TOP / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    allowed = {line[1:] for line in lines if line.startswith("!")}
    _, found = stages(TEXT)
    sources = {word for stage in found for each in stage.all("COPY") if "from" not in each.flags for word in each.words()[:-1]}

    assert lines[0] == "*"
    assert {source for source in sources if not any(source == path or source.startswith(f"{path}/") for path in allowed)} == set()
    assert {path for path in allowed - {"deploy"} if not any(s == path or s.startswith(f"{path}/") for s in sources)} == set()
    assert {"adapter/_pb", "**/__pycache__", "deploy/*"} <= set(lines)


def test_the_image_with_triton_agrees_with_the_rest() -> None:
    """With the adapter's image, and within itself: what Triton is told and what the adapter is told of it."""
    arguments, found = stages(SAGEMAKER.read_text())
    labels = found[-1].pairs("LABEL")
    ours = stages(TEXT)[1][-1].pairs("LABEL")
    settings = Settings.from_env({"CONTAINER_MEM_REQ_BYTES": "4Gi"} | found[-1].pairs("ENV"))
    program, *options = settings.companion.command or ()
    told = dict(option.removeprefix("--").split("=", 1) for option in options)
    values = (TOP / "deploy/helm/modelmesh-triton-adapter/values.yaml").read_text()

    assert labels["org.opencontainers.image.version"] == ours["org.opencontainers.image.version"]
    assert arguments["ADAPTER_IMAGE"] == f"{ours['org.opencontainers.image.title']}:{ours['org.opencontainers.image.version']}"
    assert arguments["TRITON_IMAGE"].partition(":")[2] in re.findall(r"tag: (\S+)", values)
    assert labels["com.amazonaws.sagemaker.capabilities.multi-models"] == "true"
    assert labels["com.amazonaws.sagemaker.capabilities.accept-bind-to-port"] == "true"
    assert (settings.spi.listen, settings.sagemaker.port) == (None, 8080)
    assert (program, told["model-repository"], told["model-control-mode"]) == ("tritonserver", "/models/_triton_models", "explicit")
    assert (told["grpc-address"], int(told["grpc-port"])) == ("127.0.0.1", settings.triton.port)
    assert int(told["model-load-thread-count"]) == settings.triton.load_threads > settings.capacity.max_loading
    assert float(told["exit-timeout-secs"]) < settings.companion.exit_seconds
    assert settings.capacity.load_timeout_ms / 1000 < 360 and settings.triton.unload_timeout_seconds < 360, "as long as SageMaker waits"
