"""Conditions on rollouts; they live in `rg_env.dump.read.where`."""

from rg_env.dump.read.where import CONDITION as CONDITION
from rg_env.dump.read.where import Condition as Condition
from rg_env.dump.read.where import ConditionError as ConditionError
from rg_env.dump.read.where import closed_values as closed_values
from rg_env.dump.read.where import parse_conditions as parse_conditions
