#!/usr/bin/env bash
# Pin the newest versions that pyproject.toml and requirements/*.in allow, in requirements/*.txt. Run all tests after it.
set -euo pipefail
cd "$(dirname "$0")/.."
for name in dev vllm verifiers clients; do
  scripts/uv.sh pip compile --quiet --upgrade --universal --python-version 3.12 --no-header --no-annotate \
    --no-emit-package rg-env --overrides requirements/overrides.txt --output-file "requirements/$name.txt" "requirements/$name.in"
done
