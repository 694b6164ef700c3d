"""Listed words never reach the reader of llm_router, whatever tokens they come in; on the real server."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from bls.contract import SMALL
from bls.routing.policy_file import SHIPPED
from bls.words.compiler import compile_folder
from bls.words.stream_filter import filter_text
from bls.words.table import WordTable
from tests.server import echo_repository
from tests.server.clients import answer, events_of, eventually, idle, metric
from tests.server.serving import launched, running_server

pytestmark = pytest.mark.server

CUT = 1000 * echo_repository.CUT
ENDLESS = 1000 * echo_repository.ENDLESS
LISTS = {
    "deny/masked.txt": "forbidden\nbad phrase\n法轮\n毒品\n",
    "deny/gone.txt": "acme*\n",
    "deny/ended.txt": "detonate\n炸弹配方\n",
    "deny/watched.txt": "weather\n",
    "allow/longer.txt": "forbidden city\n毒品种\n",
    "categories.toml": """
[categories.gone]
action = "replace"
text = "[gone]"
[categories.ended]
action = "terminate"
text = "No more of that."
[categories.watched]
action = "monitor"
[pii.email]
[pii.api_key]
""",
}
TEXTS = [
    "This is forbidden, FORBIDDEN and f\u043erbidden; the forbidden city is not.",
    "A bad phrase, a bad-phrase, a b\u00e4d phrase. ｆｏｒｂｉｄｄｅｎ too, and for\u200bbidden.",
    "他们说毒品和法 轮、毒*品,但是毒品种和法律没有。",
    "Acme and ACMEs were here. Write to someone@example.com with sk-abcdefghijklmnopqrstuvwxyz0123456789ABCD now.",
    "Fine weather 👩‍👩‍👧‍👦 until they detonate everything and go on talking.",
    "这里没有炸弹配方,只有别的话。",
    "forbiddens and unforbidden things, a class of detonators: nothing to hide",
]


def write(folder, lists):
    for name, text in lists.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("words")


@pytest.fixture(scope="module")
def server(folder):
    repository = echo_repository.make(folder, routers=16, words=write(folder / "lists", LISTS))
    # The echo engine's answer is its prompt, which must reach it as it is.
    (folder / "policy.py").write_text(f"{SHIPPED.read_text()}\nSAFETY = Safety(())\n{echo_repository.UNLIMITED}")
    echo_repository.set_parameter(repository, "llm_router", "policy_file", "policy.py")
    with running_server(folder, repository) as running:
        yield running


@pytest.fixture
def table(server, folder):
    return WordTable(compiled(folder))


def compiled(folder):
    return folder / "words" / "compiled.bin"


def shown(table, text):
    return filter_text(table, text)[0]


@pytest.mark.parametrize("text", TEXTS)
def test_no_part_of_a_listed_word_is_shown_however_the_tokens_cut_it(server, table, text):
    right = shown(table, text)
    for seed in range(12):
        out = ""
        for event in events_of(server, text_input=text, max_tokens=400, seed=CUT + seed, return_route_info=True):
            out += event["text_output"]
            assert right.startswith(out)
        assert out == right
        assert event["words_version"] == table.version


def test_the_texts_hold_what_they_are_there_for(table):
    assert {hit.category for text in TEXTS for hit in filter_text(table, text)[1]} == {
        "masked",
        "gone",
        "ended",
        "watched",
        "email",
        "api_key",
    }
    assert shown(table, TEXTS[-1]) == TEXTS[-1]


@pytest.mark.parametrize("text", TEXTS)
def test_an_answer_in_one_piece_is_filtered_as_its_stream(server, table, text):
    assert answer(server, text_input=text, max_tokens=400)["text_output"] == shown(table, text)


def test_an_echoed_prompt_is_filtered_with_its_answer(server):
    text = "a forbidden "
    for stream in (True, False):
        events = events_of(server, text_input=text, max_tokens=400, exclude_input_in_output=False, stream=stream)
        assert "".join(event["text_output"] for event in events) == "a ********* " * 2


@pytest.mark.parametrize("stream", [True, False])
def test_a_terminating_word_stops_the_engine_within_two_tokens(server, stream):
    idle(server)
    tokens, stops = (metric(server, f"echo_engine_{name}_total", model=SMALL) for name in ("tokens", "stopped"))
    saved = metric(server, "llm_router_filter_tokens_saved_total")
    text = "one two detonate three four five six seven eight nine ten "
    given = {"text_input": text, "max_tokens": 200, "seed": ENDLESS + 50, "return_num_output_tokens": True}
    events = events_of(server, stream=stream, **given)
    assert "".join(event["text_output"] for event in events) == "one two No more of that."
    assert events[-1]["finish_reason"] == "filtered"
    counted = sum(event["num_output_tokens"] for event in events)
    assert counted < 9  # " three" decides that the word has ended
    eventually(lambda: metric(server, "echo_engine_stopped_total", model=SMALL) == stops + 1)
    assert metric(server, "echo_engine_tokens_total", model=SMALL) - tokens <= counted + 2
    eventually(lambda: metric(server, "llm_router_filter_tokens_saved_total") == saved + 200 - counted)


def test_what_was_found_is_counted_by_category_and_action_and_logged_without_the_text(server):
    name = "llm_router_filter_hits_total"
    labels = [
        {"category": "masked", "action": "mask"},
        {"category": "gone", "action": "replace"},
        {"category": "watched", "action": "monitor"},
    ]
    idle(server)
    masked, gone, watched = (metric(server, name, **each) for each in labels)
    answer(server, text_input="acme forbidden weather forbidden", max_tokens=100)
    right = [masked + 2, gone + 1, watched + 1]
    eventually(lambda: [metric(server, name, **each) for each in labels] == right)
    log = server.log.read_text()
    assert "filter_hits=gone:1,masked:2,watched:1" in log
    assert "forbidden" not in log


def test_a_broken_compiled_file_leaves_the_last_good_lists_in_use(server, folder):
    original = compiled(folder).read_bytes()
    try:
        replace(folder, original[:1000])
        eventually(lambda: kept_good_lists(server), 10)
    finally:
        replace(folder, original)
    assert "the last good word list stays in use" in server.log.read_text()


def kept_good_lists(server):
    assert answer(server, text_input="forbidden", max_tokens=9)["text_output"] == "*" * 9
    return "the last good word list stays in use" in server.log.read_text()


def replace(folder, source):
    """As scripts/words compile does: at once, never in place."""
    (folder / "new.bin").write_bytes(source)
    os.replace(folder / "new.bin", compiled(folder))


def test_new_lists_under_sixteen_streams_lose_none_and_each_goes_by_the_version_that_it_names(server, folder):
    text, original = "alpha beta gamma ", compiled(folder).read_bytes()
    tables = {}
    for word in ("alpha", "beta", "gamma"):
        lists = write(folder / word, {"deny/masked.txt": f"{word}\n", "categories.toml": ""})
        compile_folder(lists, folder / f"{word}.bin")
        tables[WordTable(folder / f"{word}.bin").version] = WordTable(folder / f"{word}.bin")

    done = threading.Event()

    def streams():
        seen = set()
        while not done.is_set():
            events = events_of(server, text_input=text, max_tokens=60, seed=ENDLESS + 5, return_route_info=True)
            version = events[-1]["words_version"]
            if version in tables:
                seen.add(version)
                assert "".join(event["text_output"] for event in events) == shown(tables[version], text * 15)
        return seen

    try:
        with ThreadPoolExecutor(16) as pool:
            running = [pool.submit(streams) for _ in range(16)]
            for version in [*tables, *tables]:
                replace(folder, (folder / f"{shown_word(tables[version], text)}.bin").read_bytes())
                eventually(lambda v=version: version_now(server) == v, 10)
            done.set()
            assert set().union(*(each.result() for each in running)) == set(tables)
    finally:
        done.set()
        replace(folder, original)
    version = WordTable(compiled(folder)).version
    eventually(lambda: version_now(server) == version)


def version_now(server):
    return answer(server, text_input="hi", max_tokens=9, return_route_info=True)["words_version"]


def shown_word(table, text):
    return next(word for word in text.split() if word not in shown(table, text))


def test_without_compiled_lists_nothing_is_served_and_one_line_says_what_makes_them(tmp_path):
    repository = echo_repository.make(tmp_path, routers=1)
    compiled(tmp_path).unlink()
    with launched(tmp_path, repository) as launch:
        assert launch.wait() == 3
    (line,) = [line for line in launch.console.read_text().splitlines() if line.startswith("error: model llm_router")]
    assert "compiled.bin" in line and "run scripts/words compile" in line


def test_an_operator_may_switch_the_filter_off(tmp_path):
    repository = echo_repository.make(tmp_path, routers=1, words=write(tmp_path / "lists", LISTS))
    echo_repository.set_parameter(repository, "llm_router", "sensitive_words", "false")
    compiled(tmp_path).unlink()
    with running_server(tmp_path, repository) as server:
        reply = answer(server, text_input="forbidden", max_tokens=9, return_route_info=True)
    assert reply["text_output"] == "forbidden"
    assert "words_version" not in reply
