"""The commands of the pages, as a reader would paste them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.fronts.install import python
from tests.fronts.rig import FrontsPod
from tests.real.children import TOP
from tests.real.llm_models import vllm
from tests.real.models import affine
from tests.real.parts import or_skip

SAID = {
    "sagemaker": ("", "registered", '"modelName":"half"', '"data":[0.5,1.0]', "unregistered"),
    "v2-rest": (
        "", '"name":"half"', '"backend":"python"', '"data":[0.5,1.0]', '"Y":[0.5,1.0]',
        '"text_output":" sky"', '"/v2/models/{name}/generate_stream"',
    ),
    "lmi": (
        "", '"token_details":"ids"', '{"generated_text":" The sky is"}', '"generated_tokens":3', '"text":" sky"',
        '{"generated_text":" The sky is"}', '"generated_text":" The sky is"',
    ),
    "openai": (
        '"id":"chat"', '"text":" The sky is"', '"content":" user: The sky"', '"delta":{"content":" user:"}',
    ),
}  # fmt: skip
"""Page → what the answer to each of its commands has in it."""
MODELS = {"sagemaker": {}, "v2-rest": {"half": affine(0.5, 0), "chat": vllm()}, "lmi": {"chat": vllm()}}
CHAT = {**vllm(), "chat_template.jinja": b"{% for each in messages %}{{ each.role }}: {{ each.content }}\n{% endfor %}assistant:"}
MODELS["openai"] = {"chat": CHAT}


def block_of(page: str, language: str) -> str:
    (block,) = re.findall(rf"```{language}\n(.*?)```", (TOP / "deploy" / "docs" / f"{page}.md").read_text(), re.DOTALL)
    return str(block)


def here(text: str, pod: FrontsPod) -> str:
    """With the ports of this run in the place of the page's."""
    for port, front in ((8080, pod.sagemaker), (8082, pod.v2), (8083, pod.llm)):
        text = text.replace(f"localhost:{port}", f"localhost:{front.port}")
    return text


def load(pod: FrontsPod, page: str) -> None:
    for name, files in MODELS[page].items():
        assert pod.load(name, files).status == 200


def run(command: list[str | Path]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{command}: {done.stdout} {done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.parametrize("page", SAID)
def test_each_command_of_the_page_works(pod: FrontsPod, page: str) -> None:
    url = pod.put("half", affine(0.5, 0))
    load(pod, page)
    commands = block_of(page, "bash").replace("\\\n", "").strip().splitlines()
    for command, said in zip(commands, SAID[page], strict=True):
        assert said in run(["bash", "-c", here(command, pod).replace("/opt/ml/models/half/model", url)])


def test_the_pages_client_prints_the_text_and_its_tokens(pod: FrontsPod) -> None:
    interpreter = or_skip(lambda: python("huggingface-hub"))
    load(pod, "lmi")
    assert run([interpreter, "-c", here(block_of("lmi", "python"), pod)]) == " The sky is\n The\n sky\n is\n"


def test_openais_client_on_the_page(pod: FrontsPod) -> None:
    interpreter = or_skip(lambda: python("openai"))
    load(pod, "openai")
    assert run([interpreter, "-c", here(block_of("openai", "python"), pod)]) == " user: The sky\n"
