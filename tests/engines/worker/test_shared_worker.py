"""engines/worker/shared_worker.py and engines/worker/shared_launch.py: one process for several engines."""

import multiprocessing
import os
import queue
import socket
import threading
import time
import uuid

import pytest

from bls.errors import EngineFailed
from engines.triton.coalescer import Pace
from engines.triton.engine import Engine, Periods
from engines.triton.tensors import EngineRequest
from engines.worker.generation import Generation
from engines.worker.parameters import EngineParameters
from engines.worker.scheduler import Scheduler
from engines.worker.shared_launch import SharedWorker, is_ours
from engines.worker.shared_worker import GONE, JOINED, Client, Hub
from engines.worker.worker import Add, Batch, Failed, Ready, Start, Step, Stop
from tests import small_tokenizers
from tests.fake_pipeline import CountingPipeline, RememberingSender

OUTPUTS = frozenset({"output_ids", "sequence_length"})
WAIT_S = 20


def generation(*prompt, max_tokens=4):
    return Generation(prompt, max_tokens, frozenset({10_000}))


class SharedHub:
    """A hub in a thread. `client()` gives our end of a connection, which has been told that the engine is ready."""

    def __init__(self, pipeline=None, **options):
        self.pipeline = pipeline or CountingPipeline(total_blocks=64)
        self.inbox = queue.SimpleQueue()
        self.result = None
        hub = Hub(Scheduler(self.pipeline, options.pop("most", 8), **options))
        self.thread = threading.Thread(target=lambda: setattr(self, "result", hub.serve(self.inbox)), daemon=True)
        self.thread.start()
        self.clients = {}

    def client(self):
        ours, theirs = multiprocessing.Pipe()
        self.clients[ours] = Client(theirs)
        self.inbox.put((self.clients[ours], JOINED))
        assert isinstance(receive(ours), Ready)
        return ours

    def send(self, connection, command):
        self.inbox.put((self.clients[connection], command))

    def leave(self, connection):
        self.send(connection, GONE)

    def ended(self):
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()
        return self.result


def receive(connection):
    assert connection.poll(WAIT_S), "nothing came"
    return connection.recv()


def ids_of(connection, keys):
    """The ids of each key, read until all of them have ended."""
    ids, open_keys = {key: [] for key in keys}, set(keys)
    while open_keys:
        message = receive(connection)
        assert isinstance(message, Step)
        for event in message.events:
            ids[event.key] += event.ids
            if event.is_last:
                open_keys.remove(event.key)
    return ids


def test_clients_with_the_same_keys_get_their_own_ids():
    hub = SharedHub()
    one, two = hub.client(), hub.client()
    hub.send(one, Batch((Add(0, generation(10)), Add(1, generation(20)))))
    hub.send(two, Add(0, generation(30)))
    assert ids_of(one, [0, 1]) == {0: [11, 12, 13, 14], 1: [21, 22, 23, 24]}
    assert ids_of(two, [0]) == {0: [31, 32, 33, 34]}


def test_requests_of_two_clients_share_a_step():
    pipeline = CountingPipeline(total_blocks=64)
    gate = threading.Event()
    pipeline.before_step = gate.wait
    hub = SharedHub(pipeline)
    one, two = hub.client(), hub.client()
    hub.send(one, Add(0, generation(10)))
    hub.send(two, Add(0, generation(30)))
    gate.set()
    ids_of(one, [0])
    ids_of(two, [0])
    assert max(map(len, pipeline.batches)) == 2


def test_a_client_that_leaves_takes_its_requests_along_and_no_others():
    pipeline = CountingPipeline(total_blocks=1 << 20)
    hub = SharedHub(pipeline)
    one, two = hub.client(), hub.client()
    hub.send(one, Add(0, generation(10, max_tokens=100_000)))
    hub.send(two, Add(0, generation(30, max_tokens=500)))
    assert receive(one).events
    hub.leave(one)
    assert len(ids_of(two, [0])[0]) == 500
    hub.leave(two)
    assert hub.ended() == 0
    assert not pipeline.running or not pipeline.batches[-1]


def test_it_ends_with_its_last_client():
    hub = SharedHub()
    one, two = hub.client(), hub.client()
    hub.leave(one)
    hub.send(two, Add(0, generation(10)))
    assert ids_of(two, [0]) == {0: [11, 12, 13, 14]}
    hub.leave(two)
    assert hub.ended() == 0


def test_a_stop_ends_the_clients_own_request():
    hub = SharedHub(CountingPipeline(total_blocks=1 << 20))
    one, two = hub.client(), hub.client()
    hub.send(one, Add(0, generation(10, max_tokens=100_000)))
    hub.send(two, Add(0, generation(30, max_tokens=300)))
    hub.send(one, Stop(0))
    hub.send(one, Stop(7))
    ids_of(one, [0])
    assert len(ids_of(two, [0])[0]) == 300


def test_a_step_that_fails_is_told_to_every_client():
    pipeline = CountingPipeline()

    def fail():
        raise RuntimeError("no memory")

    pipeline.before_step = fail
    hub = SharedHub(pipeline)
    one, two = hub.client(), hub.client()
    hub.send(one, Add(0, generation(10)))
    for connection in (one, two):
        message = receive(connection)
        assert isinstance(message, Failed)
        assert message.reason == "RuntimeError: no memory"
    assert hub.ended() == 1


def test_a_static_batch_starts_with_all_that_came_together():
    hub = SharedHub(in_flight=False)
    one = hub.client()
    hub.send(one, Batch(tuple(Add(key, generation(10, max_tokens=key + 1)) for key in range(4))))
    ids_of(one, range(4))
    assert [len(batch) for batch in hub.pipeline.batches[:4]] == [4, 3, 2, 1]


def test_the_other_side_of_a_socket_is_this_user():
    one, two = socket.socketpair()
    with one, two:
        assert is_ours(one)


@pytest.fixture
def folder(tmp_path):
    small_tokenizers.write_manifest(tmp_path / "built", "huggingface", "tokenizer.json").weights_path.touch()
    return tmp_path / "built"


@pytest.fixture
def engine(folder):
    """Makes engines that share a process."""
    scope, made = uuid.uuid4().hex, []

    def make(built=folder, **settings):
        start = Start("tests.fake_pipeline:CountingProcess", built, EngineParameters(in_flight=True, **settings))
        periods = Periods(cancellation=0.01, statistics=0.01)
        made.append(Engine(lambda: SharedWorker(start, scope), Pace(), periods))
        return made[-1]

    yield make
    for one in made:
        one.close()


def submit(engine, *prompt, max_tokens=4):
    sender = RememberingSender()
    engine.submit("", EngineRequest(generation(*prompt, max_tokens=max_tokens), False, True), OUTPUTS, sender)
    return sender


def process_of(engine):
    return engine._worker._worker._process


def test_a_second_engine_joins_the_first_ones_process(engine):
    one, two = engine(), engine()
    assert process_of(one) is not None
    assert process_of(two) is None
    senders = [submit(one, 10), submit(two, 20)]
    assert [sender.ids() for sender in senders] == [[11, 12, 13, 14], [21, 22, 23, 24]]


def test_an_engine_with_other_settings_has_a_process_of_its_own(engine):
    engine()
    assert process_of(engine(max_batch_size=3)) is not None


def test_the_process_lives_on_for_the_others_and_ends_with_the_last(engine):
    one, two = engine(), engine()
    process = process_of(one)
    one.close()
    assert process.poll() is None
    assert submit(two, 20).ids() == [21, 22, 23, 24]
    two.close()
    assert process.wait(WAIT_S) == 0


def test_when_the_process_dies_all_engines_get_another_one(engine):
    one, two = engine(), engine()
    running = [submit(each, 10, max_tokens=200) for each in (one, two)]
    process_of(one).kill()
    for each in running:
        assert each.ended.wait(WAIT_S)
    for each in (one, two):
        assert answer_of(each) == [21, 22, 23, 24]
    assert sum(process_of(each) is not None for each in (one, two)) == 1


def answer_of(engine):
    """Asks again for as long as the engine is being started."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        try:
            return submit(engine, 20).ids()
        except Exception as error:
            assert "started again" in str(error), error
            time.sleep(0.05)
    raise AssertionError("the engine never came back")


def test_a_model_that_does_not_load_is_told_in_one_line(engine, tmp_path):
    small_tokenizers.write_manifest(tmp_path / "crash", "huggingface", "tokenizer.json").weights_path.touch()
    with pytest.raises(EngineFailed, match="RuntimeError: out of memory"):
        engine(tmp_path / "crash")


def test_the_name_leaves_no_file_and_is_free_again(engine):
    one = engine()
    process = process_of(one)
    one.close()
    process.wait(WAIT_S)
    two = engine()
    assert process_of(two) is not None
    assert os.getpid() != process_of(two).pid
