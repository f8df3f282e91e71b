"""Links and pipes: in order on a pipe, any order between pipes, blocked one way, delivered late or given up."""

from __future__ import annotations

from flintmq.testing.simulation.fault_schedule import both_ways, bridge, clients_only, isolated, one_way
from flintmq.testing.simulation.timeline import Timeline, Trace
from flintmq.testing.simulation.wires import Pipe, Wires


class _Post:
    """Wires, and what arrived over them."""

    def __init__(self, seed: int = 1) -> None:
        self.timeline = Timeline()
        self.wires = Wires(self.timeline, Trace(self.timeline), f"{seed}")
        self.arrived: list[str] = []
        self.given_up = 0

    def pipe(self, source: str = "a", target: str = "b", patience_s: float = 10.0) -> Pipe:
        def give_up() -> None:
            self.given_up += 1

        return Pipe(
            self.wires,
            source,
            target,
            self.arrived.append,
            on_given_up=give_up,
            patience_s=(patience_s, patience_s),
        )

    def run(self, until_s: float) -> None:
        while (due_s := self.timeline.next_s()) is not None and due_s <= until_s:
            self.timeline.now_s = due_s
            self.timeline.run_due()
        self.timeline.now_s = until_s


def test_messages_of_one_pipe_keep_their_order_and_those_of_two_need_not() -> None:
    orders = set()
    for seed in range(20):
        post = _Post(seed)
        one, other = post.pipe(), post.pipe()
        for n in range(3):
            one.send(f"one {n}")
            other.send(f"other {n}")
        post.run(1.0)
        for name in ("one", "other"):
            assert [text for text in post.arrived if text.startswith(name)] == [
                f"{name} {n}" for n in range(3)
            ]
        orders.add(tuple(post.arrived))
    assert len(orders) > 3


def test_a_blocked_link_holds_messages_back_in_one_direction() -> None:
    post = _Post()
    there, back = post.pipe("a", "b"), post.pipe("b", "a")
    post.wires.block([("a", "b")])
    there.send("there")
    back.send("back")
    post.run(5.0)
    assert post.arrived == ["back"]
    assert there.stalled_since_s is not None
    post.wires.unblock([("a", "b")])
    post.run(6.0)
    assert post.arrived == ["back", "there"]
    assert there.stalled_since_s is None


def test_a_link_that_two_faults_block_is_open_when_both_are_over() -> None:
    post = _Post()
    pipe = post.pipe()
    post.wires.block([("a", "b")])
    post.wires.block([("a", "b")])
    pipe.send("x")
    post.run(1.0)
    post.wires.unblock([("a", "b")])
    post.run(2.0)
    assert not post.arrived
    post.wires.unblock([("a", "b")])
    assert post.arrived == ["x"]


def test_what_waits_for_too_long_is_lost() -> None:
    post = _Post()
    pipe = post.pipe(patience_s=3.0)
    post.wires.block([("a", "b")])
    pipe.send("lost")
    post.run(5.0)
    assert post.given_up == 1
    post.wires.unblock([("a", "b")])
    pipe.send("later")
    post.run(6.0)
    assert post.arrived == ["later"]


def test_a_closed_pipe_carries_nothing() -> None:
    post = _Post()
    pipe = post.pipe()
    pipe.send("on its way")
    pipe.close()
    pipe.send("after")
    post.run(1.0)
    assert not post.arrived


def test_shapes_of_partitions() -> None:
    assert both_ways(["a"], ["b"]) == (("a", "b"), ("b", "a"))
    assert one_way(1, [1, 2]) == (("broker 1", "broker 2"), ("broker 1", "store"))
    assert ("clients", "broker 1") in isolated(1, [1, 2, 3])
    only = clients_only(1, [1, 2, 3])
    assert ("broker 1", "store") in only
    assert ("broker 3", "broker 1") in only
    assert not any("clients" in link for link in only)
    assert set(bridge([1, 2, 3], 2)) == {("broker 1", "broker 3"), ("broker 3", "broker 1")}
