"""Runs a program that the kernel ends when its starter is gone, however that happened (`ward.py STARTER-PID PROGRAM ARGUMENT...`).

A test run that is killed outright cannot clean up. On Linux the thread that started the program counts as the starter;
elsewhere the program simply runs.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    starter, program = int(sys.argv[1]), sys.argv[2]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != starter:
            sys.exit(f"{program} is not started: process {starter}, which asked for it, has ended.")
    os.execv(program, sys.argv[2:])  # noqa: S606 - becoming the program is the purpose


if __name__ == "__main__":
    main()
