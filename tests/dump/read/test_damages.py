"""Figures, findings, messages and exit codes of corrupt dumps are those that an earlier version gave."""

from __future__ import annotations

import pytest

from tests.dump.read.damages import DAMAGES, readings, stored

STORED = stored()


def test_every_kind_of_damage_is_stored():
    assert STORED.keys() == DAMAGES.keys()


@pytest.mark.parametrize("name", DAMAGES)
def test_a_corrupt_dump_is_read_as_before(name, tmp_path):
    assert readings(name, tmp_path) == STORED[name]
