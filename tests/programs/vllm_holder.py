"""Start a vLLM server as a fixture does, print its process, and wait: python -m tests.programs.vllm_holder LOG"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.vllm import conftest


def print_instead_of_waiting(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    print(process.pid, flush=True)


if __name__ == "__main__":
    conftest._wait_until_healthy = print_instead_of_waiting
    with conftest.running_server("nano", Path(sys.argv[1])):
        time.sleep(600)
