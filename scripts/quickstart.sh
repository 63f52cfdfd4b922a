#!/usr/bin/env bash
# Train with configs/NAME.yaml and show what was learned:  scripts/quickstart.sh NAME MODEL
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1 model=$2

if [ "$model" = smollm2 ]; then
  model=runs/models/SmolLM2-135M-Instruct
  .venv/bin/python scripts/make_smollm2.py "$model"
fi
.venv/bin/rg-env train "configs/$name.yaml" "trainer.policy.model.path=$model"
.venv/bin/rg-env dumps stats "runs/$name/dumps"
echo
.venv/bin/rg-env dumps report "runs/$name/dumps" --out "runs/$name/report.html"
echo "The run is in runs/$(readlink "runs/$name"), and runs/$name points to it. So that rg-env is found in this shell: . .venv/bin/activate"
