# Sourced by the scripts beside it: `environment PACKAGE==VERSION …` installs packages in a temporary folder, which is
# removed at the end, and sets `python` to its interpreter. PYTHON: the one to make it with; by default 3.12.
set -euo pipefail
uv=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/scripts/uv.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

environment() {
  "$uv" venv --quiet --python "${PYTHON:-3.12}" "$work/venv"
  "$uv" pip install --quiet --python "$work/venv/bin/python" "$@"
  python=$work/venv/bin/python
}
