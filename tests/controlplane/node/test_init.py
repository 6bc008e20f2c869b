"""The first process of a node ends every process that it can see, and so must be the first of a namespace."""

import subprocess
import sys
from typing import Final

from tests.controlplane.extender import REPOSITORY

# Should it end anything, it would be every process of the machine: this stands before it.
STARTED: Final = """
import os, runpy
os.kill = lambda *_: os._exit(3)
runpy.run_module("tests.controlplane.node.init", run_name="__main__")
"""


def test_whoever_is_not_the_first_process_of_a_namespace_ends_nothing() -> None:
    # The end of input would end the node.
    done = subprocess.run(
        [sys.executable, "-S", "-c", STARTED],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "This is the first process of a test node" in done.stderr
