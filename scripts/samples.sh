#!/usr/bin/env bash
# Make again what the repository shows of runs: dumps/sample, and the pictures of the README and of docs/reading.md.
# A few minutes on two idle cores; needs Chromium:  scripts/samples.sh
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/.venv/bin work=$(mktemp -d) ours=environment.skyrl_gym.rg_dump
trap 'rm -rf "$work"' EXIT
ln -s "$root/configs" "$work/configs"
cd "$work"

"$bin/rg-env" train configs/quickstart.yaml "$ours.num_eval_samples_per_task=4" "$ours.dump_dir=sample" \
  trainer.{train,policy_mini}_batch_size=8 trainer.micro_{train,forward}_batch_size_per_gpu=64 \
  trainer.max_training_steps=3 trainer.eval_before_train=false trainer.eval_interval=3 trainer.hf_save_interval=-1
sed -i "s#$work/##g; s#$root/##g; s#\"host\": \"[^\"]*\"#\"host\": \"localhost\"#" sample/*manifest*
rm -rf "$root/dumps/sample"
mkdir "$root/dumps/sample"
cp sample/*.json* "$root/dumps/sample"

"$bin/python" "$root/scripts/terminal_picture.py" "$root/docs/terminal.svg" configs/quickstart.yaml
"$bin/rg-env" dumps report runs/quickstart/dumps --out report.html
chromium --headless --no-sandbox --hide-scrollbars --window-size=1180,1765 --virtual-time-budget=5000 \
  --screenshot="$root/docs/report.png" "file://$work/report.html"

# Two runs that differ in the reward alone.
ln -s "$root/scripts" "$work/scripts"
pair() {
  "$bin/rg-env" train configs/quickstart.yaml trainer.max_training_steps=30 trainer.seed=1 "$ours.seed=1" "$ours.reward=$2" \
    trainer.eval_before_train=false trainer.eval_interval=-1 trainer.hf_save_interval=-1 "$ours.dump_dir=two/$1/dumps"
}
pair quickstart null
pair short_pays evidence.lab_faults.short_pays
"$bin/rg-env" dumps report two/quickstart/dumps two/short_pays/dumps --out two.html
chromium --headless --no-sandbox --hide-scrollbars --window-size=1180,1530 --virtual-time-budget=5000 \
  --screenshot="$root/docs/two-runs.png" "file://$work/two.html"
