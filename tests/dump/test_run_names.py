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
    found = named(
        tmp_path,
        ("a", "r1", "small"),
        ("b", "r2", "/home/somebody/large"),
        ("c", "r3", "nano"),
        ("d", "r4", "nano"),
        ("d", "r5", "nano"),
        ("d", "r6", None),
    )
    assert found == {
        "r1": "small",
        "r2": "large",
        "r3": "nano (c)",
        "r4": "nano (d, r4)",
        "r5": "nano (d, r5)",
        "r6": "r6",
    }
