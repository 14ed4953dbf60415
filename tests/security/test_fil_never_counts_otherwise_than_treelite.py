"""Damaged and doctored forests: refused by the adapter or by Treelite, or both say the same numbers."""

import json
import random
import zipfile
from pathlib import Path

import pytest

from adapter.layout import forests
from tests.security import unmeasured
from tests.security.chosen import long_but
from tests.unit.layout.cases.builders import ends_of

ARCHIVE = Path(__file__).parent / "forests" / "forests.zip"
KINDS = {"json": "xgboost_json", "ubj": "xgboost_ubj", "txt": "lightgbm", "model": "xgboost"}
KEYS = (b"num_class", b"num_target", b"num_feature", b"learner_model_param", b"objective", b"learner", b"max_feature_idx")
SPLICES = [
    *KEYS, b'"learner_model_param":{"num_class":"9"},', b"L" + (19).to_bytes(8, "big") + b"learner_model_param", b"\nnum_class=9\n",
    b"\nmax_feature_idx=9\n", b"\nTree=0\n", b'"learner":{},', b'"Config":{', b"}", b"{", b'"', b"\\", b"\0", b"9", b"0", b"L", b"\n",
]  # fmt: skip


def mutated(content: bytes, chance: random.Random) -> bytes:
    """Up to three edits, near the keys and the ends more often than elsewhere."""
    for _ in range(chance.choice([1, 1, 2, 3])):
        where = chance.choice(["head", "tail", "key", "key", "any"])
        at = chance.randrange(max(1, len(content)))
        if where == "head":
            at = min(at, chance.randrange(250))
        elif where == "tail":
            at = max(0, len(content) - 1 - chance.randrange(500))
        elif where == "key":
            at = max(0, content.rfind(chance.choice(KEYS)) + chance.randrange(-15, 40))
        end = at + chance.randrange(1, 40)
        into = chance.randrange(len(content) + 1)
        digits = [place for place in range(at, min(at + 60, len(content))) if content[place : place + 1].isdigit()]
        digit = chance.choice(digits or [at])
        other = b"%d" % chance.randrange(10)
        content = chance.choice(
            [
                *[content[:digit] + other + content[digit + 1 :]] * 4,
                content[:at] + bytes([chance.choice(b'0123456789{}[]",:\n=LSUil\0')]) + content[at + 1 :],
                content[:at] + chance.choice(SPLICES) + content[at:],
                content[:at] + content[end:],
                content[:into] + content[at:end] + content[into:],
            ]
        )
    return content


@pytest.mark.parametrize("edits", long_but((80, 400), 80))
@pytest.mark.parametrize("suffix", KINDS)
def test_no_damage_makes_another_number_of_it(tmp_path, suffix, edits):
    """Edits of real forests, the same at each run; Treelite is asked in a child, since it dies of some."""
    chance = random.Random(suffix)
    with zipfile.ZipFile(ARCHIVE) as archive:
        originals = [archive.read(name) for name in archive.namelist() if name.endswith(f".{suffix}")]
    kind = KINDS[suffix]
    told = {}
    for number in range(edits):
        content = mutated(chance.choice(originals), chance)
        try:
            forest = forests.read(kind, ends_of(content))
        except forests.Unreliable:
            continue
        if forest.model_type == kind:
            path = tmp_path / f"{number}.{suffix}"
            path.write_bytes(content)
            told[str(path)] = f"{forest.outputs} {forest.features}"
    lines = "".join(json.dumps([kind, path]) + "\n" for path in told)
    done = unmeasured.run("-c", "from tests.security.fil_stand_in import count; count()", lines=lines, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    both = {path: (ours, theirs) for (path, ours), theirs in zip(told.items(), done.stdout.splitlines(), strict=True) if theirs}

    assert len(both) > edits / 20
    assert {path: said for path, said in both.items() if said[0] != said[1]} == {}
