"""The dashboard of the chart, which Grafana imports: its panels and their queries."""

import json
import re
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).parents[3] / "helm" / "dra-extender" / "monitoring" / "dashboard.json"


def panels() -> list[dict[str, Any]]:
    """Every panel, without the rows that they stand in."""
    found: list[dict[str, Any]] = json.loads(FILE.read_text())["panels"]
    return [each for each in found if each["type"] != "row"]


def queries() -> dict[str, str]:
    """PromQL of every query by the title of its panel and its legend."""
    return {
        f"{panel['title']} [{target['legendFormat']}]": target["expr"]
        for panel in panels()
        for target in panel["targets"]
    }


def filled(query: str) -> str:
    """The query as Grafana sends it with everything chosen, at scrapes of a second."""
    return re.sub(r'"\$\w+"', '".*"', query.replace("$__rate_interval", "1m"))
