"""An admin who follows the pages in `deploy/docs`, in one namespace, from an own folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.chart.admin.api import NAMESPACE, Api, Object
from tests.chart.admin.cluster import Cluster, CommandError
from tests.chart.admin.pages import steps
from tests.real.children import TOP

CHART = "deploy/helm/modelmesh-triton-adapter"


class Admin:
    """Keeps what the shell remembers: files, and the variables of the page."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.folder = folder
        (folder / "deploy").symlink_to(TOP / "deploy")
        labels = {"modelmesh-enabled": "true"}
        self.api.ask("POST", NAMESPACE.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}})

    @property
    def api(self) -> Api:
        """The API server, without a command in between."""
        return self.cluster.api

    def says(self, script: str, env: Mapping[str, str] | None = None) -> str:
        """What commands print. Raises CommandError when one fails."""
        variables = {"NAMESPACE": self.namespace, "CONTROLLER": self.namespace, "REGISTRY": "registry.example.com"}
        return self.cluster.shell(script, folder=self.folder, env=variables | dict(env or {}))

    def refusal(self, script: str) -> str:
        """What a command says that fails."""
        try:
            said = self.says(script)
        except CommandError as error:
            return str(error)
        raise AssertionError(f"not refused: {script}: {said}")

    def follow(self, page: str, *headings: str) -> str:
        """
        Run the commands of these sections of a page; what they print must be what the page shows.

        `heading:N` stands for one block of a section whose blocks are choices.
        """
        output = ""
        for words in headings:
            heading, _, number = words.partition(":")
            found = [step for step in steps(page) if step.heading == heading]
            found = [found[int(number)]] if number else found
            assert found, f"{page} has no commands below the heading {heading}"
            for step in found:
                said = self.says(step.script)
                assert step.said_by(said), f"{page}, {heading}: the page shows\n{step.prints}\nand the commands printed\n{said}"
                output += said
        return output

    def apply(self, *objects: Object) -> None:
        """As `kubectl apply`, in this namespace."""
        for each in objects:
            each["metadata"] = {**each["metadata"], **({} if each["kind"].startswith("Cluster") else {"namespace": self.namespace})}
        self.cluster.apply(*objects)
