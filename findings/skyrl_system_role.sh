#!/usr/bin/env bash
# SkyRL 0.4.0's generator cannot be made for a chat template without a system role, though no prompt has one.
#
# The usual guess: a model whose template refuses system messages, as Gemma 2's does, trains if no prompt has one.
# What happens: when it is made, the generator renders a conversation of its own, which begins with a system message, to
#   cut off observations of several turns; also for environments of one turn. The template's exception ends the run, after
#   the engine has loaded the model.
# Met by: Gemma 2 and models with a template like its own.
# The cure here: rg_env's generator lets that message be refused when it is made, so that system_prompt=null is enough.
source "$(dirname "$0")/environment.sh"
environment skyrl==0.4.0 skyrl-gym==0.4.0 torch==2.13.0 ray==2.57.0 transformers==5.16.1 omegaconf==2.3.1 hydra-core==1.3.4 \
  numpy jaxtyping loguru tensordict accelerate peft==0.18.1 torchdata func_timeout aiohttp pybase64 orjson httpx
cd "$(dirname "$0")"
"$python" - <<'PY'
import sys
from importlib.metadata import version

from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
from tiny_model import tokenizer

TURNS = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
REFUSES = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + TURNS
prompt = [{"role": "user", "content": "a b c"}]
config = SkyRLTrainConfig()


def made(template):
    """What happens to a prompt without a system message, and to a generator, with this template."""
    tokenizer.chat_template = template
    rendered = tokenizer.apply_chat_template(prompt, tokenize=False)
    try:
        SkyRLGymGenerator(config.generator, config.environment.skyrl_gym, None, tokenizer)
    except Exception as error:
        return rendered, f"{type(error).__name__}: {error}"
    return rendered, "made"


print("skyrl", version("skyrl"))
takes, refuses = made(TURNS), made(REFUSES)
print("a template that takes system messages:", *takes)
print("one that refuses them:", *refuses)
sys.exit(not (takes[1] == "made" and refuses[0] == takes[0] and "no system role" in refuses[1]))
PY
