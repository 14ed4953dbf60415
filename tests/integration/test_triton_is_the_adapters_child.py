"""TRITON_COMMAND: the adapter starts Triton beside itself; whichever ends first, in whatever way, nothing is left."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from adapter.memory import report
from tests.integration.conftest import TEXT, Put, get
from tests.real import install
from tests.real.adapter import AdapterProcess
from tests.real.children import is_alive
from tests.real.mesh import Mesh
from tests.real.models import text_statistics
from tests.real.polls import until
from tests.real.ports import free_ports
from tests.real.triton import Triton

Launch = Callable[..., AdapterProcess]
UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
UNTIL_TOLD = "trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.1; done"
NEVER = "trap '' TERM; echo up; while :; do sleep 0.1; done"


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def descendants(pid: int) -> list[int]:
    found = children(pid)
    return [*found, *(deeper for child in found for deeper in descendants(child))]


def all_gone(pids: list[int]) -> None:
    until(lambda: not any(map(is_alive, pids)), f"{pids} are gone", 30)


@pytest.fixture
def launch(tmp_path: Path, storage_config: Path) -> Iterator[Launch]:
    """An adapter with this command; whatever the program prints is in the adapter's log."""
    (target,) = free_ports(1)
    with ExitStack() as stack:

        def start(
            command: str, *, wrapper: tuple[str, ...] = (), triton_port: int = target, wait: bool = True, **env: str
        ) -> AdapterProcess:
            adapter = AdapterProcess(
                volume=tmp_path / "volume",
                storage_config=storage_config,
                triton_target=f"127.0.0.1:{triton_port}",
                env={"TRITON_COMMAND": command} | env,
                wrapper=wrapper,
                wait=wait,
            )
            return stack.enter_context(adapter)

        (tmp_path / "volume").mkdir()
        yield start


def script(text: str) -> str:
    return shlex.join(["/bin/sh", "-c", text])


def launched(launch: Launch, text: str, **env: Any) -> AdapterProcess:
    """With a shell in Triton's place, when both run."""
    adapter = launch(script(text), **env)
    until(lambda: "up" in adapter.log_text().splitlines(), "the program is up")
    return adapter


@pytest.fixture
def with_triton(launch: Launch, put: Put, tmp_path: Path) -> Iterator[tuple[AdapterProcess, Mesh]]:
    """The real one, with a model whose stub is a process of its own. The folder of models is made by the adapter."""
    install.install()
    ports = free_ports(3)
    triton = Triton(tmp_path / "volume" / "_triton_models", ports=ports)
    triton.server_id, triton.shm_prefix = "child", f"mmta_parts_{os.getpid()}_child_"
    put("texts", dict(text_statistics()))
    env = {name: value for name, value in install.environment().items() if name in ("PATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS")}
    adapter = launch(shlex.join(map(str, triton.command())), triton_port=ports[0], LOADTIME_TIMEOUT="90000", **env)
    try:
        with Mesh(adapter.channel_target, f"127.0.0.1:{ports[0]}") as mesh:
            mesh.start()
            mesh.load("t", "python", "texts")
            assert mesh.infer("t", TEXT)["COUNTS"].ravel().tolist() == [3, 2]
            yield adapter, mesh
    finally:
        for region in Path("/dev/shm").glob(f"{triton.shm_prefix}*"):
            region.unlink(missing_ok=True)


def test_triton_writes_with_the_umask_of_the_container(launch: Launch) -> None:
    """The adapter's own files can be read by all, whatever that is."""
    adapter = launched(launch, f"echo umask is $(umask); {UNTIL_TOLD}", wrapper=("/bin/sh", "-c", 'umask 0027; exec "$@"', "sh"))
    assert "umask is 0027" in adapter.log_text().splitlines()


def test_sigterm_drains_the_adapter_and_then_ends_triton(with_triton: tuple[AdapterProcess, Mesh]) -> None:
    adapter, _ = with_triton
    family = descendants(adapter.pid)
    assert len(family) > 2, "Triton, the shell that reads the pipe, the stub of the python model"

    adapter.signal(signal.SIGTERM)

    assert adapter.wait(60) == 0
    all_gone(family)
    log = adapter.log_text()
    assert "Started GRPCInferenceService" in log, "what Triton prints"
    assert log.index('"adapter.draining"') < log.index("Waiting for in-flight requests to complete.") < log.index('"adapter.stopped"')
    assert '"triton.process_started"' in log
    assert '"triton.process_killed"' not in log and '"triton.process_ended"' not in log


def test_an_adapter_that_is_killed_takes_triton_along(with_triton: tuple[AdapterProcess, Mesh]) -> None:
    adapter, _ = with_triton
    family = descendants(adapter.pid)

    os.kill(adapter.pid, signal.SIGKILL)

    assert adapter.wait(10) == -signal.SIGKILL
    all_gone(family)


def test_a_triton_that_dies_ends_the_adapter_with_its_code(with_triton: tuple[AdapterProcess, Mesh]) -> None:
    adapter, _ = with_triton
    (triton,) = children(adapter.pid)
    family = descendants(adapter.pid)

    os.kill(triton, signal.SIGKILL)

    assert adapter.wait(30) == 128 + signal.SIGKILL
    all_gone(family)
    assert '"triton.process_ended"' in adapter.log_text() and '"exit_code":137' in adapter.log_text()


@pytest.mark.parametrize(("end", "code"), [("exit 7", 7), ("exit 0", 1), ("kill -SEGV $$", 128 + signal.SIGSEGV)])
def test_its_end_is_ours_and_never_a_success(launch: Launch, end: str, code: int) -> None:
    """It was not asked for."""
    adapter = launch(script(f"sleep 1; {end}"), wait=False)

    assert adapter.wait(30) == code
    assert '"triton.process_ended"' in adapter.log_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_adapter_alone_or_to_all_of_its_group_is_one_sigterm(launch: Launch, number: signal.Signals) -> None:
    """Ctrl-C in a terminal goes to the whole group: the program has one of its own, so that the adapter drains first."""
    adapter = launched(launch, UNTIL_TOLD)

    if number is signal.SIGINT:
        os.killpg(adapter.pid, number)
    else:
        adapter.signal(number)

    assert adapter.wait(30) == 0
    log = adapter.log_text()
    assert log.count("\ntold\n") == 1
    assert log.index("adapter.draining") < log.index("\ntold\n") < log.index("adapter.stopped")


def test_one_that_does_not_end_is_killed(launch: Launch) -> None:
    adapter = launched(launch, NEVER, TRITON_EXIT_SECONDS="1")
    family = descendants(adapter.pid)

    adapter.signal(signal.SIGTERM)

    assert adapter.wait(30) == 0
    assert '"triton.process_killed"' in adapter.log_text()
    all_gone(family)


def test_a_second_signal_ends_it_at_once(launch: Launch) -> None:
    adapter = launched(launch, NEVER, TRITON_EXIT_SECONDS="600")
    family = descendants(adapter.pid)

    adapter.signal(signal.SIGTERM)
    until(lambda: "adapter.draining" in adapter.log_text(), "draining")
    adapter.signal(signal.SIGTERM)

    assert adapter.wait(20) == 128 + signal.SIGTERM
    all_gone(family)


def test_what_it_leaves_in_its_group_is_ended(launch: Launch) -> None:
    """As stubs of a Triton that has crashed."""
    adapter = launched(launch, f"{shlex.join(['/bin/sh', '-c', NEVER])} & echo up; sleep 1; exit 3")
    family = descendants(adapter.pid)
    assert len(family) > 2

    assert adapter.wait(30) == 3
    all_gone(family)


def test_words_are_split_as_by_a_shell_and_nothing_is_expanded(launch: Launch, tmp_path: Path) -> None:
    program = tmp_path / "a program"
    program.write_text('#!/bin/sh\nfor word; do echo "<$word>"; done\nexit 5\n')
    program.chmod(0o755)

    adapter = launch(f"'{program}' plain \"two words\" $HOME *", wait=False)

    assert adapter.wait(30) == 5
    assert "<plain>\n<two words>\n<$HOME>\n<*>\n" in adapter.log_text()


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("no-such-program --x=secret", 1, "TRITON_COMMAND: there is no program 'no-such-program'"),
        ("tritonserver '--x=secret", 2, "TRITON_COMMAND: cannot be split into words: no closing quotation"),
        ("''", 2, "TRITON_COMMAND: names no program"),
    ],
)
def test_a_command_that_cannot_be_run_is_told_in_words(launch: Launch, command: str, code: int, says: str) -> None:
    adapter = launch(command, wait=False)

    assert adapter.wait(30) == code
    assert says in adapter.log_text()
    assert "secret" not in adapter.log_text() and "Traceback" not in adapter.log_text()


def test_an_adapter_that_cannot_start_leaves_no_program(launch: Launch, tmp_path: Path) -> None:
    """Its port is taken: found after the program was started."""
    first = launched(launch, UNTIL_TOLD)
    taken = first.settings["ADAPTER_PORT"]
    marker = tmp_path / "pid"

    second = launch(
        script(f"echo $$ > {marker}; exec sleep 1000"), wait=False, ADAPTER_PORT=taken, ROOT_MODEL_DIR=str(tmp_path / "another")
    )

    assert second.wait(30) == 1
    assert "start.failed" in second.log_text()
    assert not marker.exists() or not is_alive(int(marker.read_text()))


def test_process_1_buries_whatever_falls_to_it(launch: Launch, tmp_path: Path) -> None:
    """An orphan that ends stays a zombie until its new parent asks for it."""
    if shutil.which("unshare") is None or subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs unshare, and the right to make a namespace of processes")
    adapter = launched(launch, "for i in 1 2 3; do (sleep 0.3 & exit 0); done; " + UNTIL_TOLD, wrapper=UNSHARE)
    (first,) = children(adapter.pid)
    (program,) = (pid for pid in children(first) if UNTIL_TOLD.encode() in Path(f"/proc/{pid}/cmdline").read_bytes())

    until(lambda: children(first) == [program], "the program alone is left to process 1")
    assert all(b"kill -KILL" not in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(program)), "a shell that is not needed"
    os.kill(first, signal.SIGTERM)

    assert adapter.wait(30) == 0
    assert "\ntold\n" in adapter.log_text()


def test_without_modelmesh_health_is_asked_over_http(launch: Launch, tmp_path: Path) -> None:
    """ADAPTER_PORT=0 opens no port for it; `probe` and `models` find the way."""
    (port,) = free_ports(1)
    adapter = launch(script(UNTIL_TOLD), wait=False, ADAPTER_PORT="0", SAGEMAKER_BIND_TO_PORT=str(port))

    def probed() -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **adapter.settings}
        return subprocess.run([sys.executable, "-m", "adapter", "probe"], env=env, capture_output=True, text=True, check=False)

    until(lambda: "adapter.started" in adapter.log_text(), "started")
    done = probed()

    assert (done.returncode, done.stdout) == (0, f"127.0.0.1:{adapter.settings['METRICS_PORT']}: 200 alive\n")
    assert get(f"{adapter.metrics_url}/healthz") == (200, "alive\n")
    assert '"listens":[]' in adapter.log_text()
    adapter.signal(signal.SIGTERM)
    assert adapter.wait(30) == 0


def test_the_reporter_of_memory_runs_beside_it(launch: Launch, tmp_path: Path) -> None:
    """In the container's own control group, where it shows one."""
    if not any(Path("/sys/fs/cgroup", name).exists() for name in ("memory.max", "memory/memory.stat")):
        pytest.skip("no control group is shown here")
    adapter = launched(launch, UNTIL_TOLD)
    file = tmp_path / "volume" / "_adapter" / "triton-memory"
    until(lambda: file.exists() and report.read(file), "a report")
    before = descendants(adapter.pid)
    adapter.stop()
    all_gone(before)
