"""docs/start/laptop.md: what its two pods come to, and the sentence that it shows."""

from pathlib import Path
from typing import Final

from dra_extender.cli.app import app
from typer.testing import CliRunner

ROOT: Final = Path(__file__).parent.parent
# What the example DRA driver publishes for one device on the node of kind, and its class.
DRIVER: Final = """
apiVersion: v1
kind: Node
metadata: {name: dra-control-plane}
status:
  allocatable: {cpu: "8", memory: 16Gi, pods: "110"}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec:
  selectors:
    - cel: {expression: device.driver == 'gpu.example.com'}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: dra-control-plane-gpu.example.com}
spec:
  driver: gpu.example.com
  nodeName: dra-control-plane
  pool: {name: dra-control-plane, generation: 1, resourceSliceCount: 1}
  devices:
    - name: gpu-0
      attributes:
        driverVersion: {version: 1.0.0}
        index: {int: 0}
        model: {string: LATEST-GPU-MODEL}
        uuid: {string: gpu-18db0e85-99e9-c746-8531-ffeb86328b39}
      capacity:
        memory: {value: 80Gi}
"""


def test_the_first_pod_gets_the_device_and_the_second_waits_with_the_sentence_of_the_guide(tmp_path: Path) -> None:
    driver = tmp_path / "driver.yaml"
    driver.write_text(DRIVER)
    done = CliRunner().invoke(app, ["demo", "-f", str(driver), "-f", str(ROOT / "deploy" / "laptop" / "pods.yaml")])
    assert done.exit_code == 0, done.output
    printed = " ".join(done.output.split())
    assert "default/first -> dra-control-plane gpu: gpu-0" in printed
    shown = (ROOT / "docs" / "start" / "laptop.md").read_text().partition("kubectl describe pod second\n")[2]
    assert f"default/second waits: {shown.partition(chr(10))[0]}" in printed
