"""
What Triton's backends do not check and pay for with their memory or a shell: told before a config of ours gets there.

Pure. Where a backend answers with an error of its own, nothing is checked here.

Source: pytorch_backend `src/libtorch.cc`: `ValidateInputs` takes the number in `<name>__<number>` for the input's position,
and `SetInputTensors` writes there, into a list with one place for each input of the request (outputs are compared with their
number). dali_backend `src/model_provider/model_provider.h`: `GenerateAutoserializeCmd` puts the path of the model's file into
a command for `system`; releases before `ValidatePath` compare it with nothing.
"""

from __future__ import annotations

import re

from adapter.errors import InvalidModel
from adapter.layout.model_config import ModelConfig
from adapter.layout.model_types import ModelType
from adapter.layout.tree import LayoutError, Tree, shortened

_NO_SHELL = re.compile(r"[\w.~:@%+=,-]+", re.ASCII)


def check_written(kind: ModelType, config: ModelConfig, version: Tree) -> None:
    """
    Look at a config that is written for the files of one version.

    Raises:
        InvalidModel: the schema's tensors would damage Triton's memory.
    """
    if kind.name == "pytorch" and "model.pt" in version.file_names:
        _check_positions(config.tensor_names("input"))


def check_name(name: str, config: ModelConfig) -> None:
    """
    Look at the name that a model gets in Triton's repository.

    Raises:
        LayoutError: the DALI backend would give it to a shell.
    """
    if config.backend == "dali" and not _NO_SHELL.fullmatch(name):
        raise LayoutError(f"the model id {shortened(name)} has characters that the DALI backend would hand to a shell")


def _check_positions(names: list[str]) -> None:
    """Where all names end in numbers, the numbers are the places of the inputs: each must be there."""
    numbers = [number for _, mark, number in (name.partition("__") for name in names) if mark and re.fullmatch("[0-9]*", number)]
    if len(numbers) < len(names):
        return
    for name, number in zip(names, numbers, strict=True):
        if int(number[:20] or "0") >= len(names):
            raise InvalidModel(
                f"the schema has {len(names)} input{'s' * (len(names) > 1)} and calls one {shortened(name)}: the PyTorch backend takes "
                f"the number for the input's position and does not look whether there is one; the first is 0"
            )
