#!/usr/bin/env bash
# Run vLLM's OpenAI server on the CPU:  scripts/serve_vllm.sh MODEL PORT [vLLM options]
#
# MODEL is a folder or `nano`; the model is served under this name. The server runs in the foreground; stop it with Ctrl-C
# or SIGTERM.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
model=$1 port=$2
folder=$model
[ "$model" = nano ] && folder=$here/rg_env/skyrl/cpu/nano

export VLLM_SERVER_DEV_MODE=1                        # enables the weight-loading routes, so bind to 127.0.0.1 only
export VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1} # GiB
export VLLM_CPU_OMP_THREADS_BIND=${VLLM_CPU_OMP_THREADS_BIND:-nobind} # the trainer uses the same cores alternately
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE}   # otherwise waiting threads spin and slow down the trainer
export TORCHDYNAMO_DISABLE=1                         # --enforce-eager needs no compilation
export VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
# Start the module: `vllm serve` requires a distribution named vllm, and this one is named vllm-cpu.
exec "${VLLM_PYTHON:-$here/.venv-vllm/bin/python}" -m vllm.entrypoints.openai.api_server \
  --model "$folder" --served-model-name "$model" --host 127.0.0.1 --port "$port" \
  --enable-scale-out --dtype float32 --enforce-eager --generation-config vllm --disable-log-stats --disable-uvicorn-access-log \
  --max-num-seqs 128 "${@:3}"
