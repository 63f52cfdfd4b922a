"""`rg-env train` that saves, for each step, the difference between the engine's logprobs and the trainer's.

python -m tests.vllm.recorded_run OUT.jsonl CONFIG.yaml [overrides]
"""

import json
import sys
from pathlib import Path

import ray


@ray.remote(num_cpus=1)
def _recorded(cfg, path):
    from rg_env.skyrl import experiment

    class Recording(experiment.RGExperiment):
        def get_trainer(self, *args, **kwargs):
            trainer = super().get_trainer(*args, **kwargs)
            train = trainer.train_critic_and_policy

            def record_and_train(data):
                mask = data["loss_mask"].bool()
                theirs, ours = data["rollout_logprobs"][mask], data["action_log_probs"][mask]
                difference = (theirs - ours).abs() / ours.abs().clamp(min=1)  # relative beyond 1 nat: float32
                line = {
                    "tokens": int(mask.sum()),
                    "largest_difference": difference.max().item(),
                    "mean_difference": difference.mean().item(),
                    "version": trainer.inference_engine_client.weight_version,
                }
                status = train(data)
                with Path(path).open("a") as out:
                    out.write(json.dumps({**line, "grad_norm": status["grad_norm"]}) + "\n")
                return status

            trainer.train_critic_and_policy = record_and_train
            return trainer

    experiment.RGExperiment = Recording
    experiment.run_training(cfg)


def main():
    from rg_env.skyrl import launch
    from rg_env.skyrl.train_config import load_run

    path, *args = sys.argv[1:]
    cfg = load_run(args).cfg
    with launch.running_ray(cfg):
        ray.get(_recorded.remote(cfg, path))


if __name__ == "__main__":
    main()
