#!/usr/bin/env bash
# Run uv: the one on the PATH, or else one that is installed into .venv-uv.
#
# PYTHON: the interpreter that .venv-uv is made with, at least 3.9.
set -euo pipefail
folder=$(cd "$(dirname "$0")/.." && pwd)/.venv-uv

if ! command -v uv >/dev/null; then
  PATH=$PATH:$folder/bin
  if ! [ -x "$folder/bin/uv" ]; then
    { "${PYTHON:-python3}" -m venv "$folder" && "$folder/bin/python" -m pip install --quiet uv==0.13.9; } >&2 || {
      echo "uv could not be installed with ${PYTHON:-python3}, see above; install uv (https://docs.astral.sh/uv) and try again" >&2
      exit 2
    }
  fi
fi
exec uv "$@"
