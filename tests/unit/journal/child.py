"""
A process that notes and awaits without end, until somebody kills it. Arguments: the file, and a seed.

Tells each thing on its standard output, in one write a line, before it goes on: `n ID NUMBER` before it notes, `f ID NUMBER`
before it forgets, `w NUMBER` when `written` has returned after that number.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from adapter.journal.journal import Journal
from tests.unit.journal.beds import BOOT, a_record


async def main(path: str, seed: str) -> None:
    source = random.Random(seed)
    journal = Journal(Path(path), boot=lambda: BOOT)
    journal.open()
    number = max((record.size_bytes for record in journal.records.values()), default=0)
    while True:
        for _ in range(source.choice((1, 1, 3, 40))):
            number += 1
            model_id = f"m{source.randrange(30)}"
            if source.random() < 0.2:
                os.write(1, f"f {model_id} {number}\n".encode())
                journal.forget(a_record(model_id))
            else:
                os.write(1, f"n {model_id} {number}\n".encode())
                journal.note(a_record(model_id, size_bytes=number, path="p" * source.randrange(200)))
        if source.random() < 0.7:
            await journal.written()
            os.write(1, f"w - {number}\n".encode())
        else:
            await asyncio.sleep(0)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
