#!/usr/bin/env bash
# Create an environment with rg_env and verifiers:  scripts/install_verifiers.sh PYTHON FOLDER
#
# Neither requires torch.
set -euo pipefail
python=$1 folder=$2

"$python" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
  -e '.[verifiers]' hypothesis psutil pytest pytest-timeout
