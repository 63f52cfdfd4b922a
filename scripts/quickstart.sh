#!/usr/bin/env bash
# Train with configs/NAME.yaml into a new folder, to which runs/NAME points:  scripts/quickstart.sh NAME MODEL
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1 model=$2 link=runs/$1
run=$link-$(date +%Y%m%d-%H%M%S)
ours=environment.skyrl_gym.rg_dump

if [ "$model" = smollm2 ]; then
  model=runs/models/SmolLM2-135M-Instruct
  .venv/bin/python scripts/make_smollm2.py "$model"
fi

mkdir -p "$run"
if [ -e "$link" ] && ! [ -L "$link" ]; then mv "$link" "$run-before"; fi
ln -sfn "$(basename "$run")" "$link"
.venv/bin/rg-env train "configs/$name.yaml" "trainer.policy.model.path=$model" "trainer.ckpt_path=$run/checkpoints" \
  "trainer.export_path=$run/exports" "trainer.log_path=$run/logs" "$ours.dump_dir=$run/dumps"
.venv/bin/rg-env dumps stats "$run/dumps"
echo
echo "The run is in $run, and $link points to it. For short commands in this shell: . .venv/bin/activate"
