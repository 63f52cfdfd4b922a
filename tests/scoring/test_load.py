import pytest

from rg_env.scoring.load import Load


def test_the_longest_queue_and_the_mean_time_since_the_last_look(monkeypatch):
    now = iter([0.0, 1.0, 3.0, 5.0, 10.0, 12.0])
    monkeypatch.setattr("rg_env.scoring.load.monotonic", lambda: next(now))
    load = Load(lambda: 1)
    assert load.take() == {}
    with pytest.raises(ZeroDivisionError), load.one_answer():  # 0 to 5
        with load.one_answer():  # 1 to 3
            pass
        raise ZeroDivisionError
    assert load.take() == {"rg_dump/mean_scoring_seconds": 3.5, "rg_dump/max_scoring_queue": 1}
    with load.one_answer():
        pass
    assert load.take() == {"rg_dump/mean_scoring_seconds": 2.0, "rg_dump/max_scoring_queue": 0}
    assert load.take() == {}
