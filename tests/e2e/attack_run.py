"""`rg-env train` in which one response in ten is replaced by an attack.

python tests/e2e/attack_run.py attacked|left_alone CONFIG.yaml [overrides]

The inference client replaces the responses after sampling. At learning rate 0, the other responses are therefore
identical, token for token, to those of a run without attacks. Attacks pass through everything that handles a response:
SkyRL's agent loop, the env, the pool, the trainer.
"""

import hashlib
import sys
from collections import Counter

import ray

ONE_IN = 10
ACTS = ("spin", "sleep", "exit", "allocate", "raise")
"""What the scorer of the task `acts` does for an answer (tests/scoring/file_scorer_functions.py)."""
ANSWERS = ("zorp(1)", "[zorp(1)]", "1e100", "nan", "", *ACTS)
TEXTS = (*(f"<think></think><answer>{answer}</answer>" for answer in ANSWERS), "<answer>" * 20, "<think>" + "(" * 60)


def attack_on(prompt, asked_before):
    """What replaces the n-th response to this prompt, or None; depends on nothing else."""
    digest = hashlib.blake2b(repr((prompt, asked_before)).encode(), digest_size=8).digest()
    which, hit = divmod(int.from_bytes(digest, "big"), ONE_IN)
    texts = [text for text in TEXTS if any(f">{act}<" in text for act in ACTS)] if "acts" in prompt else TEXTS
    return texts[which % len(texts)] if hit == 0 else None


@ray.remote(num_cpus=1)
def _train(cfg, attacked):
    from rg_env.skyrl import experiment
    from rg_env.skyrl.cpu.client import CPUInferenceClient

    class Watched(experiment.RGExperiment):
        def get_generator(self, cfg, tokenizer, inference_engine_client):
            if attacked:
                attack(inference_engine_client, tokenizer)
            return super().get_generator(cfg, tokenizer, inference_engine_client)

    def attack(client, tokenizer):
        asked = Counter()
        generate = client.generate

        async def generate_or_attack(input_batch, model=None):
            replaced = []
            for prompt in map(tuple, input_batch["prompt_token_ids"]):
                replaced.append(attack_on(tokenizer.decode(prompt), asked[prompt]))
                asked[prompt] += 1
            output = await generate(input_batch, model)
            for place, text in enumerate(replaced):
                if text is not None:
                    ids = tokenizer.encode(text, add_special_tokens=False)
                    output["responses"][place] = text
                    output["response_ids"][place] = ids
                    output["stop_reasons"][place] = "stop"
                    if output["response_logprobs"]:
                        output["response_logprobs"][place] = [-1.0] * len(ids)
            return output

        assert isinstance(client, CPUInferenceClient)
        client.generate = generate_or_attack

    experiment.RGExperiment = Watched
    experiment.run_training(cfg)


def main():
    from rg_env.skyrl import launch
    from rg_env.skyrl.train_config import load_run

    mode, *args = sys.argv[1:]
    cfg = load_run(args).cfg
    with launch.running_ray(cfg):
        ray.get(_train.remote(cfg, mode == "attacked"))


if __name__ == "__main__":
    main()
