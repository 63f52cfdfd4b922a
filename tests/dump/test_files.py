"""Trying folders, without trace."""

from concurrent.futures import ThreadPoolExecutor

from rg_env.dump.files import try_folder


def test_trying_a_folder_creates_nothing_that_another_run_could_stumble_over(tmp_path):
    def try_often(name):
        for number in range(100):
            try_folder(tmp_path / str(number) / name)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(try_often, "abcd"))
    assert not list(tmp_path.iterdir())
