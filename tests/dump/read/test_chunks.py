from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rg_env.dump.files import DumpFile
from rg_env.dump.read.chunks import bundles, parts_of
from rg_env.dump.schema import FileKind


def file_of(path, content, kind=FileKind.ROLLOUTS):
    path.write_bytes(content)
    return DumpFile(path, kind, "run", 0, part=False)


contents = st.lists(st.binary(max_size=9)).map(b"\n".join)


@given(content=contents, size=st.integers(1, 12))
def test_parts_are_the_file_cut_between_lines(tmp_path_factory, content, size):
    file = file_of(tmp_path_factory.mktemp("chunks") / "x.jsonl", content)
    parts = list(parts_of(file, size=size))
    assert b"".join(part.data for part in parts) == content
    assert all(part.data.endswith(b"\n") for part in parts[:-1])
    numbered = [(number, line) for part in parts for number, _, line in part.placed()]
    assert numbered == [(k, line) for k, line in enumerate(content.split(b"\n"), 1) if line.strip()]


@given(sizes=st.lists(st.integers(0, 30), max_size=6), size=st.integers(1, 40))
def test_small_files_are_bundled_and_kinds_kept_apart(tmp_path_factory, sizes, size):
    folder = tmp_path_factory.mktemp("bundles")
    kinds = [FileKind.ROLLOUTS, FileKind.FAILED]
    files = [file_of(folder / f"{k}", b"x\n" * n, kinds[k % 3 // 2]) for k, n in enumerate(sizes)]
    found = list(bundles(files, size))
    assert [part.data for bundle in found for part in bundle] == [p.data for f in files for p in parts_of(f, size)]
    for bundle in found:
        assert len({part.file.kind for part in bundle}) == 1
        assert len(bundle) == 1 or sum(len(part.data) for part in bundle) <= size
