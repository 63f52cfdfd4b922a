#!/usr/bin/env bash
# Make again what the repository shows of runs: dumps/sample and its report, and the two pictures of the README.
# A few minutes on two idle cores; needs Chromium:  make samples
set -euo pipefail
cd "$(dirname "$0")/.."
ours=environment.skyrl_gym.rg_dump
train() { # FOLDER COMMAND…: into a new folder
  rm -rf "$1"
  "${@:2}" configs/quickstart.yaml "trainer.ckpt_path=$1/checkpoints" "trainer.export_path=$1/exports" \
    "trainer.log_path=$1/logs" "$ours.dump_dir=$1/dumps" "${changes[@]}"
}
changes=(trainer.max_training_steps=3 trainer.{train,policy_mini}_batch_size=8 trainer.micro_{train,forward}_batch_size_per_gpu=64
  trainer.eval_before_train=false
  trainer.eval_interval=3 trainer.hf_save_interval=-1 "$ours.num_eval_samples_per_task=4")
train runs/sample .venv/bin/rg-env train
sed -i "s#$PWD/##g; s#\"host\": \"[^\"]*\"#\"host\": \"localhost\"#" runs/sample/dumps/*manifest*
rm -rf dumps/sample && cp -r runs/sample/dumps dumps/sample && rm -f dumps/sample/*.lock
.venv/bin/rg-env dumps report dumps/sample --out docs/sample-report.html --force
changes=()
train runs/picture .venv/bin/python scripts/terminal_picture.py docs/terminal.svg
.venv/bin/rg-env dumps report runs/picture/dumps --out runs/picture/report.html --force
chromium --headless --no-sandbox --hide-scrollbars --window-size=1180,1765 --virtual-time-budget=5000 \
  --screenshot=docs/report.png "file://$PWD/runs/picture/report.html"
