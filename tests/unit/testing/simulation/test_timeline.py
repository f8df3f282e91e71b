"""Virtual time: events in their order, and a digest of everything that happened."""

from __future__ import annotations

from flintmq.testing.simulation.timeline import Timeline, Trace


def test_events_run_in_the_order_of_their_times_then_of_their_scheduling() -> None:
    timeline, ran = Timeline(), list[str]()
    timeline.after(2.0, lambda: ran.append("late"))
    timeline.after(1.0, lambda: ran.append("first"))
    timeline.after(1.0, lambda: ran.append("second"))
    timeline.after(1.5, lambda: ran.append("cancelled")).cancel()
    assert not timeline.run_due()
    while (due_s := timeline.next_s()) is not None:
        timeline.now_s = due_s
        assert timeline.run_due()
    assert ran == ["first", "second", "late"]
    assert timeline.now_s == 2.0


def test_a_digest_depends_on_time_text_and_data() -> None:
    def digest(at_s: float, text: str, data: bytes) -> str:
        timeline = Timeline()
        trace = Trace(timeline)
        timeline.now_s = at_s
        trace.note(text, data)
        return trace.digest()

    assert digest(1.0, "a", b"x") == digest(1.0, "a", b"x")
    assert (
        len({digest(1.0, "a", b"x"), digest(1.1, "a", b"x"), digest(1.0, "b", b"x"), digest(1.0, "a", b"y")})
        == 4
    )
