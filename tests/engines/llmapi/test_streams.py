"""Many requests at once through engines/llmapi and the scheduler: each gets a prefix of its own ids, and one end."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.worker.generation import Generation
from engines.worker.scheduler import STOP_WORD, STOPPED, Scheduler
from tests.llmapi_models import llmapi_pipeline

NO_END = 49151


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    made = llmapi_pipeline(tmp_path_factory.mktemp("model"), max_batch_size=3)
    yield made
    made.close()


@dataclass(frozen=True)
class Asked:
    """`end` and `word` say after how many ids they come; `stop` after how many steps the client asks for its end."""

    first: int
    max_tokens: int
    end: int | None
    word: tuple[int, int] | None
    stop: int | None

    def generation(self):
        end_ids = frozenset({NO_END if self.end is None else self.first + self.end})
        word = () if self.word is None else (tuple(self.first + place for place in range(*self.word)),)
        return Generation((self.first,), self.max_tokens, end_ids, stop_words=word)

    def expected(self):
        """The ids and the end of it alone, unless it is stopped."""
        ends = [(self.max_tokens, 2, "length")]
        if self.end is not None:
            ends.append((self.end, 0, "end_id"))
        if self.word is not None:
            ends.append((self.word[1] - 1, 1, STOP_WORD))
        last, _, ended = min(ends)
        return [self.first + place for place in range(1, last + (ended != "end_id"))], ended


PLACES = st.integers(1, 10)
WORDS = st.tuples(PLACES, PLACES).filter(lambda word: word[0] < word[1])
ASKED = st.builds(
    Asked,
    first=st.integers(100, 40_000),
    max_tokens=st.integers(1, 10),
    end=st.none() | PLACES,
    word=st.none() | WORDS,
    stop=st.none() | st.integers(0, 12),
)


@given(asked=st.lists(ASKED, min_size=1, max_size=8))
@settings(deadline=None, max_examples=40)
def test_each_request_gets_a_prefix_of_its_ids_and_one_end(pipeline, asked):
    scheduler = Scheduler(pipeline, 3)
    events = []
    for key, one in enumerate(asked):
        scheduler.add(key, one.generation())
    steps = 0
    while scheduler.is_busy:
        for key, one in enumerate(asked):
            if one.stop == steps:
                events += scheduler.stop(key)
        events += scheduler.step()
        steps += 1
    for key, one in enumerate(asked):
        mine = [event for event in events if event.key == key]
        ids = [token for event in mine for token in event.ids]
        expected, ended = one.expected()
        assert [event.is_last for event in mine] == [False] * (len(mine) - 1) + [True]
        assert mine[-1].error is None
        if mine[-1].ended == STOPPED:
            assert one.stop is not None
            assert ids == expected[: len(ids)]
        else:
            assert (ids, mine[-1].ended) == (expected, ended)
