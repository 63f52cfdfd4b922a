# Sourced by the scripts beside it: `environment PACKAGE==VERSION …` installs packages in a temporary folder, which is
# removed at the end, and sets `python` to its interpreter. PYTHON: the one to make it with, from 3.12 on; by default that
# of the checkout's .venv, or else 3.12, which uv finds or downloads.
set -euo pipefail
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
uv=$checkout/scripts/uv.sh
if [ -z "${PYTHON:-}" ] && [ -x "$checkout/.venv/bin/python" ]; then
  PYTHON=$("$checkout/.venv/bin/python" -c 'import sys; print(sys._base_executable)')
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

environment() {
  "$uv" venv --quiet --python "${PYTHON:-3.12}" "$work/venv"
  [ $# -eq 0 ] || "$uv" pip install --quiet --python "$work/venv/bin/python" "$@"
  python=$work/venv/bin/python
}
