import pytest

from rg_env.dump.write import tokens


@pytest.fixture(autouse=True)
def every_step_may_wait(monkeypatch):
    """Steps without a model take milliseconds: on a busy machine more of them wait for the disk than would in a run."""
    monkeypatch.setattr(tokens, "WAITING", 1000)
