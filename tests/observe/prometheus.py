"""A real Prometheus on loopback that scrapes one extender as the operator would have it scraped."""

import json
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import yaml

from tests.controlplane.ports import free_ports
from tests.controlplane.process import Component

LABELS: Final = {"namespace": "dra-extender", "pod": "dra-extender-5d9c7b8f6-x2x7q"}
"""What the operator adds to the series of a pod."""

Sample = dict[str, Any]


class Prometheus:
    """As an async context manager it is ready on entry and gone on exit."""

    def __init__(self, program: Path, folder: Path, target: int, rules: dict[str, Any]) -> None:
        """Scrape the extender on the port `target`, and evaluate these rules."""
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
        scrape = {
            "job_name": "dra-extender",
            "static_configs": [{"targets": [f"127.0.0.1:{target}"], "labels": LABELS}],
        }
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [scrape],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self._process = Component(
            "prometheus",
            [
                program,
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            folder / "prometheus.log",
        )

    async def __aenter__(self) -> Self:
        self._process.start()
        await self._process.serving(f"{self.url}/-/ready")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._process.stop()

    async def query(self, expression: str) -> list[Sample]:
        """The samples of an instant query; fails with the words of Prometheus if it cannot be evaluated."""
        answer = await self._get("query", query=expression)
        found: list[Sample] = answer["result"]
        return found

    async def value(self, expression: str) -> float | None:
        """The one value of a query, None without any."""
        found = await self.query(expression)
        assert len(found) <= 1, (expression, found)
        return float(found[0]["value"][1]) if found else None

    async def rules(self) -> list[dict[str, Any]]:
        """The rules as Prometheus sees them, with state and health."""
        answer = await self._get("rules")
        return [rule for group in answer["groups"] for rule in group["rules"]]

    async def _get(self, path: str, **parameters: str) -> dict[str, Any]:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session,
            session.get(f"{self.url}/api/v1/{path}", params=parameters) as response,
        ):
            answer = json.loads(await response.text())
        assert answer["status"] == "success", (parameters, answer)
        data: dict[str, Any] = answer["data"]
        return data
