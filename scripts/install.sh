#!/usr/bin/env bash
# Create a Python environment from requirements/NAME.in and the versions in NAME.txt:  scripts/install.sh FOLDER NAME
# The packages of NAME-alone.txt, where there is one, are added without what they require.
#
# PYTHON: the interpreter; by default, the first that is found and has a supported version, or else one that uv downloads.
# TORCH_INDEX: a package index with builds of torch for the CPU. Those on PyPI bring 2.5 GB of CUDA libraries.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1 name=$2

# Candidates are started, because pyenv has commands for versions that it does not run.
supported() { "$1" -c 'import sys; sys.exit(not (3, 12) <= sys.version_info[:2] < (3, 15))' 2>/dev/null; }

if [ -z "${PYTHON:-}" ]; then
  for PYTHON in python3.12 python3.13 python3.14 python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[234]*/bin/python3 ""; do
    if [ -n "$PYTHON" ] && supported "$PYTHON"; then break; fi
  done
elif ! supported "$PYTHON"; then
  found=$("$PYTHON" --version 2>&1) || found="cannot be started"
  echo "PYTHON=$PYTHON: rg_env needs Python 3.12, 3.13 or 3.14 (found: ${found##*$'\n'}); without PYTHON=, one is searched for" >&2
  exit 2
fi
# That of an activated environment stands for the one it was made with: uv makes no environment from another.
if [ -n "$PYTHON" ]; then PYTHON=$("$PYTHON" -c 'import sys; print(sys._base_executable)'); fi
uv() { PYTHON=${PYTHON:-python3} scripts/uv.sh "$@"; }

# --seed: pip, so that `pip install` in the activated environment means this one.
uv venv --quiet --seed --clear --python "${PYTHON:-3.12}" "$folder" || {
  [ -n "$PYTHON" ] || echo "no Python 3.12, 3.13 or 3.14 was found or could be downloaded; install one, and name it if it is not on the PATH: PYTHON=/path/to/python3.12" >&2
  exit 2
}
# On a terminal, uv shows its progress.
quiet=--quiet
if [ -t 2 ]; then quiet=; fi
echo "installing the packages of requirements/$name.txt into $folder; with torch from PyPI these are 2.5 GB to download" >&2
# The builds of TORCH_INDEX are preferred, because 2.13.0+cpu counts as newer than 2.13.0.
uv pip install $quiet --python "$folder/bin/python" ${TORCH_INDEX:+--index "$TORCH_INDEX" --index-strategy unsafe-best-match} \
  --requirements "requirements/$name.in" --constraints "requirements/$name.txt" --overrides requirements/overrides.txt
if [ -e "requirements/$name-alone.txt" ]; then
  uv pip install $quiet --python "$folder/bin/python" --no-deps --requirements "requirements/$name-alone.txt"
fi
echo "installed into $folder; so that its commands are found in this shell: . $folder/bin/activate" >&2
