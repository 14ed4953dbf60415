"""`serving.properties` of a model lies beside the config of the model that callers ask, however the files are laid out."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapter.layout import rules
from adapter.model import OPTIONS_FILE, Layout
from tests.builders import a_listing, a_spec
from tests.unit.layout.cases.builders import placed

PYTHON = 'backend: "python"'
NATIVE = {"config.pbtxt": PYTHON, "1/model.py": ""}
STEPS = {"a/config.pbtxt": PYTHON, "a/1/model.py": "", "b/config.pbtxt": PYTHON, "b/1/model.py": ""}
ENSEMBLE = 'platform: "ensemble" ensemble_scheduling { step { model_name: "a" } step { model_name: "b" } }'


def planned(files: dict[str, str], *, folder: Path | None = None) -> Layout:
    spec = a_spec(folders=(folder,) if folder else ())
    listing = a_listing(files)
    return rules.plan(spec, listing, {file: files[file.path].encode() for file in rules.wanted(listing, spec)})


@pytest.mark.parametrize("at", [OPTIONS_FILE, f"model/{OPTIONS_FILE}"])
def test_they_may_lie_beside_what_a_model_is_wrapped_in(at: str) -> None:
    found = planned({f"model/{path}": text for path, text in NATIVE.items()} | {at: ""}, folder=Path("/opt/ml/models"))
    assert placed(found) == {"1/model.py": "model/1/model.py", OPTIONS_FILE: at}
