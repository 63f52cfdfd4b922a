#!/usr/bin/env bash
# vLLM's own OpenAI server on this machine's CPU:  scripts/serve_vllm.sh MODEL PORT [options of vLLM]
#
# MODEL is a folder or `nano`, under whose name it is served. It runs in the foreground; Ctrl-C or SIGTERM stops it.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
model=$1 port=$2
folder=$model
[ "$model" = nano ] && folder=$here/rg_env/cpu/nano

export VLLM_SERVER_DEV_MODE=1                        # the routes over which weights arrive; so only on 127.0.0.1
export VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1} # GiB
export VLLM_CPU_OMP_THREADS_BIND=${VLLM_CPU_OMP_THREADS_BIND:-nobind} # the trainer takes turns on the same cores
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE}   # waiting threads spin otherwise, and hold the trainer up
export TORCHDYNAMO_DISABLE=1                         # nothing to compile for: --enforce-eager
export VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
# `vllm serve` looks for a distribution named vllm, and this one is vllm-cpu: so the module.
exec "${VLLM_PYTHON:-$here/.venv-vllm/bin/python}" -m vllm.entrypoints.openai.api_server \
  --model "$folder" --served-model-name "$model" --host 127.0.0.1 --port "$port" \
  --dtype float32 --enforce-eager --generation-config vllm --disable-log-stats --disable-uvicorn-access-log \
  --max-num-seqs 128 "${@:3}"
