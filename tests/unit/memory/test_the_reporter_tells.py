"""The reporter itself: in any POSIX shell, over control groups of both versions as they were recorded, beside real processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from adapter.memory.report import SCRIPT, Report, read
from adapter.volume.boot import boot_seconds
from tests.real.children import TOP
from tests.real.polls import until

V1 = {
    "memory/memory.stat": "cache 11509760\nrss 12693504\nshmem 9084928\ntotal_rss 458493952\ntotal_shmem 91238400\n",
    "memory/memory.limit_in_bytes": "2147483648\n",
    "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
}
V2 = {
    "memory.stat": "anon 458493952\nfile 6260559872\nkernel 1000\nshmem 91238400\nanon_thp 5\nshmem_thp 0\n",
    "memory.max": "2147483648\n",
    "memory.events": "low 0\nhigh 0\nmax 12\noom 4\noom_kill 3\noom_group_kill 0\n",
}
"""Lines of a real one's files."""
SHELLS = [words for words in (("dash",), ("busybox", "sh"), ("bash", "--posix")) if shutil.which(words[0])]
PARENT = 'report=$1; shift; "$@" -c "$report" triton-memory "$FILE" "$MODELS" "$GROUP" & exec sleep 60'

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a shell that starts the reporter and becomes another program, as Triton's does."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(files: dict[str, str], shell: tuple[str, ...] = ("sh",)) -> subprocess.Popen[bytes]:
        for name, content in files.items():
            (tmp_path / "group" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "group" / name).write_text(content)
        places = {"FILE": str(tmp_path / "report"), "MODELS": str(tmp_path / "models"), "GROUP": str(tmp_path / "group")}
        command = ["sh", "-c", PARENT, "triton", SCRIPT.read_text(), *shell]
        started.append(subprocess.Popen(command, env=os.environ | places, start_new_session=True))
        return started[-1]

    yield begin
    for each in started:
        each.kill()
        each.wait()


def told(tmp_path: Path) -> Report:
    """The last report."""

    def look() -> Report | None:
        return read(tmp_path / "report") if (tmp_path / "report").exists() else None

    return until(look, "a report")


def asked(tmp_path: Path) -> Report:
    """The next report that is asked for."""
    before = told(tmp_path).at

    def look() -> Report | None:
        (tmp_path / "report.asked").touch()
        found = told(tmp_path)
        return found if found.at > before and found.later is not None else None

    return until(look, "a report that was asked for")


@contextmanager
def stub(tmp_path: Path, model: str, mib: int = 32) -> Iterator[int]:
    """A process that looks like one of a python model, and holds so much."""
    program = tmp_path / "triton_python_backend_stub"
    if not program.exists():
        program.write_text(f"#!{sys.executable}\nimport sys, time\nheld = bytearray(b'x' * (int(sys.argv[3]) << 20))\ntime.sleep(60)\n")
        program.chmod(0o755)
    process = subprocess.Popen([program, tmp_path / "models" / model / "1" / "model.py", "triton_shm_1", str(mib)])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("shell", SHELLS, ids=lambda words: words[0])
@pytest.mark.parametrize("files", [V1, V2], ids=["v1", "v2"])
def test_both_versions_of_control_groups_are_told(start: Start, tmp_path: Path, files: dict[str, str], shell: tuple[str, ...]) -> None:
    start(files, shell)

    report = told(tmp_path)

    assert (report.used_bytes, report.limit_bytes, report.oom_kills) == (458493952 + 91238400, 2147483648, 3)
    assert abs(report.at - boot_seconds()) < 5
    assert (tmp_path / "report").stat().st_mode & 0o777 == 0o644


def test_no_limit_is_told(start: Start, tmp_path: Path) -> None:
    start({**V2, "memory.max": "max\n"})
    assert told(tmp_path).limit_bytes is None


def test_processes_of_python_models_are_told_by_their_directory(start: Start, tmp_path: Path) -> None:
    """Also one whose name has spaces; one of another Triton is not ours to tell."""
    (tmp_path / "elsewhere").mkdir()
    with stub(tmp_path, "a model") as pid, stub(tmp_path / "elsewhere", "foreign"):
        start(V2)
        assert not told(tmp_path).stubs, "not asked for"
        until(lambda: (seen := asked(tmp_path).stubs.get(pid)) and seen.size_bytes >= 32 << 20, "what the process holds")
        report = asked(tmp_path)
    assert report.stubs.keys() == {pid}
    assert report.stubs[pid].model == "a model"
    assert 32 << 20 <= report.stubs[pid].size_bytes < 64 << 20


def test_more_than_twenty_processes_are_told_in_turn(start: Start, tmp_path: Path) -> None:
    """The others are named; a steady stream of new processes, here of another Triton, keeps none from being told again."""
    (tmp_path / "elsewhere").mkdir()
    with ExitStack() as stack:
        pids = {stack.enter_context(stub(tmp_path, f"m{number}", 1)) for number in range(23)}
        start(V2)
        times: dict[int, set[float]] = {pid: set() for pid in pids}
        until(lambda: (report := asked(tmp_path)).stubs.keys() | (report.later or ()) == pids, "a report of all")
        for _ in range(8):
            stack.enter_context(stub(tmp_path / "elsewhere", "foreign", 1))
            report = asked(tmp_path)
            assert report.stubs.keys() | (report.later or ()) == pids
            assert len(report.stubs) == 20
            for pid in report.stubs:
                times[pid].add(report.at)
    assert min(map(len, times.values())) >= 5


def test_while_it_is_asked_it_tells_twice_a_second_and_else_every_five(start: Start, tmp_path: Path) -> None:
    start(V2)
    first = told(tmp_path)
    time.sleep(2)
    assert read(tmp_path / "report") == first
    times = set()
    for _ in range(20):
        (tmp_path / "report.asked").touch()
        time.sleep(0.2)
        times.add(told(tmp_path).at)
    assert len(times) >= 4


def test_it_ends_with_triton_and_leaves_what_is_there_alone(start: Start, tmp_path: Path) -> None:
    """A link in the place of its new file is taken away, and never written through."""
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "report.new").symlink_to(tmp_path / "precious")
    parent = start(V2)
    told(tmp_path)
    assert (tmp_path / "precious").read_text() == "precious"
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    parent.kill()
    parent.wait()
    until(lambda: not any(Path(f"/proc/{child}").exists() for child in children), "the end of the reporter", 15)


def test_the_reporter_is_thirty_lines_of_plain_shell() -> None:
    assert len(SCRIPT.read_text().splitlines()) <= 30


def test_chart_and_compose_run_this_very_script() -> None:
    """`scripts/render` copies it into the chart; in the compose file each $ stands twice."""
    chart = TOP / "deploy" / "helm" / "modelmesh-triton-adapter" / "files" / "memory.sh"
    assert chart.read_text() == SCRIPT.read_text()
    services = yaml.safe_load((TOP / "deploy" / "compose" / "compose.yaml").read_text())["services"]
    assert services["triton"]["command"][3] == SCRIPT.read_text().replace("$", "$$")
