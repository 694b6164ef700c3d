import threading
import time

from bls import watcher
from bls.errors import EngineUnavailable
from bls.watcher import Watch, Watcher


def ignore(outcome):
    pass


def eventually(condition):
    for _ in range(1000):
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_a_client_that_stays_within_its_time_has_no_outcome():
    watch = Watch(lambda: False, 1000.0, ignore)
    assert watch.look() is None
    assert 0 < watch.seconds_to_next_look() <= watcher.POLL_SECONDS


def test_while_the_routers_own_thread_looks_the_watcher_sleeps_longer_and_of_a_silent_engine_it_hears_as_ever():
    watch = Watch(lambda: False, 1000.0, ignore)
    watch._looked -= 1
    assert watch.seconds_to_next_look() == 0.0
    assert watch.look_when_due() is None
    assert watcher.POLL_SECONDS < watch.seconds_to_next_look() <= watcher._STALLED_SECONDS
    watch.enforce()
    assert 0 < watch.seconds_to_next_look() <= watcher.POLL_SECONDS


def test_the_routers_own_thread_sees_a_client_that_left_and_then_the_watcher_looks_as_ever():
    left = []
    watch = Watch(lambda: bool(left), 1000.0, ignore)
    assert watch.look_when_due() is None
    left.append(1)
    assert watch.look_when_due() is None, "it has just looked"
    watch._looked -= 1
    assert watch.look_when_due() == "cancelled"
    assert watch.seconds_to_next_look() <= watcher.POLL_SECONDS


def test_a_passed_deadline_is_a_timeout_and_stays_one():
    watch = Watch(lambda: True, 0.0, ignore)
    assert watch.look() == watch.look() == "timeout"


def test_a_client_that_left_is_cancelled():
    assert Watch(lambda: True, 1000.0, ignore).look() == "cancelled"


def test_the_next_look_is_not_later_than_the_deadline():
    assert Watch(lambda: False, 0.05, ignore).seconds_to_next_look() <= 0.05


def test_the_engine_is_stopped_again_until_its_stream_ends():
    stops = []
    watch = Watch(lambda: True, 1000.0, ignore)
    watch.stop_engine = lambda: stops.append(1)
    watch.enforce()
    assert eventually(lambda: len(stops) == 1)
    assert eventually(lambda: watch.enforce() or len(stops) >= 2)


def test_an_engine_that_never_ends_is_given_up_so_that_the_client_is_answered():
    ended = []
    watch = Watch(lambda: False, -1.0, ended.append)
    watch.enforce()
    assert ended == []
    watch._ended_at -= watcher.GRACE_SECONDS + 1
    watch.enforce()
    assert ended == ["timeout"]


def test_a_stop_that_never_returns_does_not_keep_the_client_waiting():
    ended, forever = [], threading.Event()
    watch = Watch(lambda: True, 1000.0, ended.append)
    watch.stop_engine = forever.wait
    watch.enforce()
    watch._ended_at -= watcher.GRACE_SECONDS + 1
    watch.enforce()
    assert ended == ["cancelled"]
    forever.set()


def test_a_stop_that_fails_does_not_end_the_watcher():
    left, stopped, fails = threading.Event(), threading.Event(), [EngineUnavailable("engine_control is not loaded")]

    def stop():
        if fails:
            raise fails.pop()
        stopped.set()

    watch = Watch(left.is_set, 1000.0, ignore)
    watch.stop_engine = stop
    thread = Watcher()
    thread.follow(watch)
    left.set()
    assert stopped.wait(10)
    thread.close()


def test_a_request_that_ended_is_not_looked_at_again():
    looks = []
    thread = Watcher()
    thread.follow(Watch(lambda: bool(looks.append(1)), 1000.0, ignore))
    assert eventually(lambda: looks)
    thread.follow(None)
    time.sleep(2 * watcher.POLL_SECONDS)
    seen = len(looks)
    time.sleep(3 * watcher.POLL_SECONDS)
    assert len(looks) == seen
    thread.close()


def test_an_engine_without_a_token_in_its_time_is_stopped_and_the_request_goes_on():
    stops = []
    watch = Watch(lambda: False, 1000.0, ignore)
    watch.attempt(lambda: stops.append("first"), first_token_seconds=0.0)
    assert watch.seconds_to_next_look() == 0.0
    watch.enforce()
    assert watch.is_late and watch.outcome is None
    assert eventually(lambda: watch.enforce() or len(stops) >= 2)
    assert not watch.first_token_came()


def test_a_token_in_time_ends_the_waiting_for_it():
    stops = []
    watch = Watch(lambda: False, 1000.0, ignore)
    watch.attempt(lambda: stops.append("first"), first_token_seconds=1000.0)
    watch.enforce()
    assert watch.first_token_came()
    watch.enforce()
    assert (stops, watch.is_late) == ([], False)


def test_a_stop_that_comes_late_never_meets_the_engine_that_is_tried_next():
    stops, go = [], threading.Event()
    watch = Watch(lambda: False, 1000.0, ignore)

    def stop_first():
        go.wait(60)
        stops.append("first")

    watch.attempt(stop_first, first_token_seconds=0.0)
    watch.enforce()
    watch.attempt(lambda: stops.append("second"))
    assert not watch.is_late
    watch.enforce()
    go.set()
    assert eventually(lambda: stops == ["first"])
    assert watch.first_token_came()


def test_a_request_whose_engine_died_ends_and_gives_back_what_it_held():
    ended, let_go = [], []
    watch = Watch(lambda: False, 1000.0, ended.append)
    watch.attempt(lambda: None)
    watch.depend_on(lambda: True, lambda: let_go.append(1))
    assert watch.first_token_came()
    watch.enforce()
    assert ended == []  # What the engine said last may still come.
    for _ in range(8):
        watch.enforce()
    assert (ended, let_go) == (["gone"], [1])


def test_without_a_token_there_is_time_for_another_engine():
    ended = []
    watch = Watch(lambda: False, 1000.0, ended.append)
    watch.attempt(lambda: None)
    watch.depend_on(lambda: True, lambda: None)
    for _ in range(4):
        watch.enforce()
    watch.depend_on(lambda: False, lambda: None)  # It is asked now.
    for _ in range(40):
        watch.enforce()
    assert ended == []


def test_an_engine_that_lives_keeps_its_request():
    ended = []
    watch = Watch(lambda: False, 1000.0, ended.append)
    watch.attempt(lambda: None)
    watch.depend_on(lambda: False, lambda: None)
    for _ in range(40):
        watch.enforce()
    assert ended == []
