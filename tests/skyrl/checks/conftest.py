import shutil

import pytest

from rg_env.base.errors import RGEnvError
from rg_env.skyrl.cpu import nano_path
from rg_env.skyrl.train_config import load_run

RG = "environment.skyrl_gym.rg_dump"


@pytest.fixture
def args(tmp_path):
    """The smallest valid CPU run, in its own folder."""
    return [
        "trainer.policy.model.path=nano",
        "trainer.train_batch_size=4",
        "trainer.policy_mini_batch_size=4",
        f"trainer.ckpt_path={tmp_path}/ckpt",
        "generator.n_samples_per_prompt=2",
        f"{RG}.device=cpu",
        f"{RG}.dump_dir={tmp_path}/dumps",
        f"{RG}.tasks=[chain_sum]",
    ]


@pytest.fixture
def refusal(args):
    """The one line with which a run is refused."""

    def refused(*more):
        with pytest.raises(RGEnvError) as error:
            load_run([*args, *more])
        message = str(error.value)
        assert "\n" not in message
        return message

    return refused


@pytest.fixture
def folder(tmp_path):
    """A copy of nano to break."""
    return shutil.copytree(nano_path(), tmp_path / "model")
