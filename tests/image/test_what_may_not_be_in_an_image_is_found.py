"""The look through the image's files, of `python -m tests.image.build`, on a root that holds one of each."""

from __future__ import annotations

from pathlib import Path

from tests.image.rootfs import unwanted


def test_each_of_them_is_found_once(tmp_path: Path) -> None:
    files = {
        "usr/bin/passwd": 0o4755, "usr/bin/wall": 0o2755, "etc/sticky": 0o1666,
        "usr/bin/gcc": 0o755, "usr/bin/python3": 0o755, "usr/share/doc/gcc": 0o644, "opt/adapter/secret": 0o600,
        "etc/open": 0o666, "usr/lib/python3.12/ensurepip/x": 0o644, "opt/adapter/lib/python3.12/site-packages/pip/x": 0o644,
        "opt/adapter/lib/python3.12/site-packages/grpc/pip/x": 0o644,
    }  # fmt: skip
    for name, mode in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        path.chmod(mode)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o777)

    assert sorted(unwanted(tmp_path)) == [
        "/etc/open can be written by everybody",
        "/etc/sticky can be written by everybody",
        "/opt/adapter/lib/python3.12/site-packages/pip is an installer",
        "/opt/adapter/secret cannot be read by every user",
        "/run can be written by everybody",
        "/usr/bin/gcc is a compiler or an installer",
        "/usr/bin/passwd runs as its owner",
        "/usr/bin/wall runs as its owner",
        "/usr/lib/python3.12/ensurepip is an installer",
    ]
