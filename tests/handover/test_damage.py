"""Where a heap is damaged is read off what memcheck says."""

from __future__ import annotations

from driftnet.causes.place import Where
from driftnet.handover.damage import frames_of

LOG = """\
==7== Invalid read of size 8
==7==    at 0x4023C6C: strncmp (strcmp-sse2.S:160)
==7==    by 0x4004BEE: is_dst (dl-load.c:216)
==7==  Address 0x5f is 31 bytes inside a block of size 36 alloc'd
==7==    at 0x48417B4: malloc (in /usr/lib/valgrind/vgpreload_memcheck.so)
==7==
==7== Invalid read of size 4
==7==    at 0xE533778: formats(std::vector<int> const&) (in /venv/lib/python3/site-packages/_engine.cpython-3.so)
==7==  Address 0x60 is 0 bytes after a block of size 8 alloc'd
==7==
--7-- a word of valgrind's own
==7== Invalid write of size 4
==7==    at 0x1: operator()(int) (in /usr/lib/libstdc++.so.6)
==7==    by 0xF1F8DC5: Engine::(anonymous namespace)::load(int) (in /venv/lib/site-packages/_engine.so)
==7==    by 0x128D7F43: load_module (nn.h:70)
==7==    by 0xF203276: Engine::run() (in /venv/lib/python3/site-packages/_engine.so)
==7==    by 0x4AA2A3F: _PyEval_Vector (ceval.c:6434)
==7==  Address 0x61 is 8 bytes before a block of size 16 alloc'd
==7==    at 0x48417B4: malloc (in /usr/lib/valgrind/vgpreload_memcheck.so)
==7==    by 0xF203276: Engine::other() (in /venv/lib/python3/site-packages/_engine.so)
"""


def test_a_write_out_of_bounds_counts_before_a_read_and_code_of_the_system_alone():
    assert frames_of(LOG) == ("_engine Engine::anonymous::load", "_engine Engine::run")
    assert frames_of(LOG.partition("--7--")[0]) == ("_engine formats",), "where nothing is written, what is read"
    assert frames_of("") == ()


def test_a_place_says_where_its_heap_is_damaged():
    assert str(Where("heap", ("_engine Engine::free",))) == "a damaged heap"
    where = Where("heap", ("_engine Engine::free",), damage=("_engine Engine::load", "_engine Engine::run"))
    assert str(where) == "a heap damaged in _engine Engine::load ← _engine Engine::run"
    assert where.as_json()["damage"] == ["_engine Engine::load", "_engine Engine::run"]
