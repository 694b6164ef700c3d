"""engines/triton/coalescer.py: when ids leave."""

from hypothesis import given
from hypothesis import strategies as st

from engines.triton.coalescer import Coalescer, Pace


def test_the_first_ids_are_due_at_once():
    coalescer = Coalescer(Pace(seconds=0.05))
    coalescer.add([1], [])
    assert coalescer.due() == 0.0


def test_later_ids_wait_for_the_interval():
    coalescer = Coalescer(Pace(seconds=0.05))
    coalescer.add([1], [])
    coalescer.take(now=10.0)
    coalescer.add([2], [])
    coalescer.add([3], [])
    assert coalescer.due() == 10.05
    assert coalescer.take(now=10.06) == ([2, 3], [])


def test_by_tokens_ids_wait_until_there_are_enough():
    coalescer = Coalescer(Pace(tokens=2))
    coalescer.add([1], [])
    coalescer.take(now=0.0)
    coalescer.add([2], [])
    assert coalescer.due() is None
    coalescer.add([3], [])
    assert coalescer.due() == 0.0


def test_nothing_is_due_when_nothing_gathered():
    assert Coalescer(Pace()).due() is None


@given(
    chunks=st.lists(st.tuples(st.lists(st.integers()), st.booleans())),
    pace=st.sampled_from([Pace(), Pace(0.05), Pace(tokens=3)]),
)
def test_all_ids_come_out_once_and_in_order(chunks, pace):
    coalescer, out = Coalescer(pace), []
    for now, (ids, is_taken) in enumerate(chunks):
        coalescer.add(ids, [])
        if is_taken:
            out += coalescer.take(now)[0]
    out += coalescer.take(0)[0]
    assert out == [token for ids, _ in chunks for token in ids]
