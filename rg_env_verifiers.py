"""The taskset under the name by which verifiers finds it: `vf-eval rg-env-verifiers`."""

from rg_env.trainers.verifiers import OneReply, ReasoningGymEnv, ReasoningGymTaskset

__all__ = ["OneReply", "ReasoningGymEnv", "ReasoningGymTaskset"]
