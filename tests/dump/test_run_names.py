from rg_env.dump import write_manifest
from rg_env.dump.runs import find_runs, run_names
from tests.analysis.samples import write_ledger
from tests.dump.records import group


def named(folder, *runs):
    for place, run_id, model in runs:
        (folder / place).mkdir(parents=True, exist_ok=True)
        write_ledger(folder / place, [group(0, run_id=run_id)], run_id)
        if model:
            write_manifest(folder / place, run_id, {"model": model})
    return run_names(find_runs(sorted({folder / place for place, *_ in runs})))


def test_one_run_has_model_and_folder(tmp_path):
    assert named(tmp_path, ("quickstart/dumps", "r1", "lab/nano")) == {"r1": "lab/nano (quickstart)"}


def test_several_runs_have_as_much_as_tells_them_apart(tmp_path):
    small, large = ("a", "r1", "small"), ("b", "r2", "/home/somebody/large")
    assert named(tmp_path / "1", small, large) == {"r1": "small", "r2": "large"}
    assert named(tmp_path / "2", ("a", "r1", "nano"), ("b", "r2", "nano")) == {"r1": "a", "r2": "b"}
    models = [small, large, ("b", "r3", "small")]
    assert named(tmp_path / "3", *models) == {"r1": "small (a)", "r2": "large (b)", "r3": "small (b)"}
    assert named(tmp_path / "4", ("d", "r4", "nano"), ("d", "r5", "nano")) == {"r4": "r4", "r5": "r5"}
    assert named(tmp_path / "5", small, ("c", "r6", None)) == {"r1": "a", "r6": "c"}


def test_runs_are_in_the_order_given(tmp_path):
    named(tmp_path, ("a", "r3", "m"), ("a", "r1", "m"), ("b", "r2", "m"))
    assert [run.run_id for run in find_runs([tmp_path / "b", tmp_path / "a"])] == ["r2", "r1", "r3"]
