"""`rg-env train` that also saves every batch that SkyRL is about to train on.

python tests/e2e/capture_run.py OUT.jsonl CONFIG.yaml [overrides]
"""

import json
import sys
from pathlib import Path

import ray


@ray.remote(num_cpus=1)
def _capture(cfg, path):
    from rg_env.skyrl import experiment

    class Capturing(experiment.RGExperiment):
        def get_trainer(self, *args, **kwargs):
            trainer = super().get_trainer(*args, **kwargs)
            convert = trainer.convert_to_training_input

            def convert_and_write(generator_output, uids):
                batch = convert(generator_output, uids)
                with Path(path).open("a") as out:
                    for row, uid in enumerate(uids):
                        mask = batch["response_mask"][row].bool()
                        ids = batch["sequences"][row][-mask.shape[0] :][mask].tolist()
                        line = {
                            "uid": uid,
                            "step": trainer.global_step,
                            "reward": batch["rewards"][row].sum().item(),
                            "trained_tokens": int(batch["loss_mask"][row].sum()),
                            "text": trainer.tokenizer.decode(ids, skip_special_tokens=True),
                        }
                        out.write(json.dumps(line) + "\n")
                return batch

            trainer.convert_to_training_input = convert_and_write
            return trainer

    experiment.RGExperiment = Capturing
    experiment.run_training(cfg)


def main():
    from rg_env.skyrl import launch
    from rg_env.skyrl.train_config import load_run

    path, *args = sys.argv[1:]
    cfg = load_run(args).cfg
    with launch.running_ray(cfg):
        ray.get(_capture.remote(cfg, path))


if __name__ == "__main__":
    main()
