"""The network of a world: connections that carry whole frames to the dispatchers of brokers.

Connections are lost with the process at either end, by a fault, or when a link is blocked for too long. A process
that is killed is noticed at once, as its kernel closes its sockets; a machine without power is not. A paused process
accepts connections and answers nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from flintmq.broker.dispatch import Dispatcher
from flintmq.effects import Buffer
from flintmq.testing.simulation.process import SimulatedProcess
from flintmq.testing.simulation.server_end import ServerEnd
from flintmq.testing.simulation.wires import Pipe, Wires, broker_name

CONNECT_S: Final = 5.0
IN_FLIGHT_MAX: Final = 5
_SILENT_S: Final = (0.5, 10.0)


class Service(NamedTuple):
    """A process that serves connections."""

    process: SimulatedProcess
    dispatcher: Dispatcher


class Host(Protocol):
    """A machine that brokers run on."""

    @property
    def has_power(self) -> bool: ...

    @property
    def service(self) -> Service | None:
        """None while no process listens."""
        ...


class _Open(NamedTuple):
    """Asks for a connection, or grants it."""


class _Frame(NamedTuple):
    data: bytes


class _Reset(NamedTuple):
    """The connection is gone."""


_Message = _Open | _Frame | _Reset


class SimulatedNetwork:
    def __init__(self, wires: Wires) -> None:
        self.wires = wires
        self.hosts: dict[str, Host] = {}
        self._circuits: dict[Circuit, None] = {}
        self._ports = 1024

    def of(self, process: SimulatedProcess, machine: str) -> ProcessNetwork:
        """Return the network as a process sees it."""
        return ProcessNetwork(self, process, machine)

    def process_died(self, process: SimulatedProcess, *, silently: bool) -> None:
        for circuit in list(self._circuits):
            circuit.process_died(process, silently=silently)

    def drop_connections(self, machine: str) -> None:
        for circuit in list(self._circuits):
            if machine in (circuit.client_machine, circuit.server_machine):
                circuit.drop()

    def open(self, process: SimulatedProcess, machine: str, target: str) -> SimulatedConnection:
        self._ports += 1
        circuit = Circuit(self, process, machine, target, self._ports)
        self._circuits[circuit] = None
        return circuit.client_end

    def forget(self, circuit: Circuit) -> None:
        self._circuits.pop(circuit, None)


class ProcessNetwork:
    """`effects.Network` for one process, of a broker or of clients."""

    def __init__(self, network: SimulatedNetwork, process: SimulatedProcess, machine: str) -> None:
        self._network = network
        self._process = process
        self._machine = machine

    async def connect(self, node_id: int) -> SimulatedConnection:
        connection = self._network.open(self._process, self._machine, broker_name(node_id))
        try:
            async with asyncio.timeout(CONNECT_S):
                await connection.opened
        except TimeoutError:
            connection.close()
            raise ConnectionError(f"broker {node_id} does not accept connections") from None
        except asyncio.CancelledError:
            connection.close()
            raise
        return connection


class SimulatedConnection:
    """`effects.PeerConnection`. Requests beyond `IN_FLIGHT_MAX` wait for their turn."""

    def __init__(self, circuit: Circuit, loop: asyncio.AbstractEventLoop) -> None:
        self._circuit = circuit
        self._loop = loop
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._turns = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._is_closed = False
        self.opened: asyncio.Future[None] = loop.create_future()

    async def request(self, frame: bytes) -> Buffer:
        async with self._turns:
            response: asyncio.Future[bytes] = self._loop.create_future()
            self.send(frame)
            self._waiting.append(response)
            return await response

    def send(self, frame: bytes) -> None:
        """Send a request that has no response."""
        if self._is_closed:
            raise ConnectionResetError("the connection is closed")
        self._circuit.send(_Frame(bytes(frame)))

    def close(self) -> None:
        if not self._is_closed:
            self._circuit.send(_Reset())
            self.lost()

    # ---- called by the circuit, on the loop

    def accepted(self) -> None:
        if not self.opened.done():
            self.opened.set_result(None)

    def received(self, data: bytes) -> None:
        if self._waiting:
            response = self._waiting.popleft()
            if not response.done():
                response.set_result(data)

    def lost(self) -> None:
        self._is_closed = True
        if not self.opened.done():
            self.opened.set_exception(ConnectionRefusedError("the connection was refused"))
            self.opened.exception()
        waiting, self._waiting = self._waiting, deque()
        for response in waiting:
            if not response.done():
                response.set_exception(ConnectionResetError("the connection was lost"))


class Circuit:
    """A connection as the network sees it: two ends, and a pipe for each direction."""

    def __init__(
        self, network: SimulatedNetwork, client: SimulatedProcess, machine: str, target: str, port: int
    ) -> None:
        self._network = network
        self._client = client
        self.client_machine = machine
        self.server_machine = target
        self._port = port
        self._server: SimulatedProcess | None = None
        self._server_end: ServerEnd | None = None
        wires = network.wires
        self._to_server = Pipe(wires, machine, target, self._at_server, on_given_up=self._client_gives_up)
        self._to_client = Pipe(wires, target, machine, self._at_client, on_given_up=self._server_gives_up)
        self.client_end = SimulatedConnection(self, client.loop)
        self._to_server.send(_Open())

    def send(self, message: _Message) -> None:
        """Send from the client. What a dead process still does has no effect."""
        if self._client.is_alive:
            self._to_server.send(message)

    def respond(self, data: bytes) -> None:
        self._to_client.send(_Frame(data))

    def refuse(self) -> None:
        """The broker closes the connection."""
        self._to_client.send(_Reset())

    def process_died(self, process: SimulatedProcess, *, silently: bool) -> None:
        timeline, random = self._network.wires.timeline, self._network.wires.random
        if process is self._server:
            # What it has sent is in the kernel of a machine that lives, and nowhere otherwise.
            if silently:
                self._to_client.drop()
                timeline.after(random.uniform(*_SILENT_S), self.refuse)
            else:
                self.refuse()
        elif process is self._client:
            if silently:
                self._to_server.drop()
                timeline.after(random.uniform(*_SILENT_S), lambda: self._to_server.send(_Reset()))
            else:
                self._to_server.send(_Reset())

    def drop(self) -> None:
        """Lose the connection and all that is on its way; both ends notice."""
        self._end()
        self._client.post(self.client_end.lost)
        self._tell_server(lambda end: end.lost)

    # ---- arrivals

    def _at_server(self, message: _Message) -> None:
        host = self._network.hosts[self.server_machine]
        if not host.has_power:
            return
        self._note(self.client_machine, self.server_machine, message)
        if isinstance(message, _Reset):
            self._tell_server(lambda end: end.lost)
            self._end()
        elif isinstance(message, _Open):
            service = host.service
            if service is None:
                self.refuse()
                return
            self._server = service.process
            self._server_end = ServerEnd(
                self, service.process, service.dispatcher, peer=f"{self.client_machine}:{self._port}"
            )
            self._to_client.send(_Open())
        elif self._server is None or self._server_end is None or not self._server.is_alive:
            self.refuse()
        else:
            self._server.post(self._server_end.received, message.data)

    def _at_client(self, message: _Message) -> None:
        self._note(self.server_machine, self.client_machine, message)
        if isinstance(message, _Reset) or not self._client.is_alive:
            self._client.post(self.client_end.lost)
            self._tell_server(lambda end: end.lost)
            self._end()
        elif isinstance(message, _Open):
            self._client.post(self.client_end.accepted)
        else:
            self._client.post(self.client_end.received, message.data)

    def _client_gives_up(self) -> None:
        self._client.post(self.client_end.lost)
        self._to_server.send(_Reset())

    def _server_gives_up(self) -> None:
        self._tell_server(lambda end: end.lost)
        self._to_client.send(_Reset())

    def _tell_server(self, method: Callable[[ServerEnd], Callable[[], object]]) -> None:
        if self._server is not None and self._server_end is not None:
            self._server.post(method(self._server_end))

    def _end(self) -> None:
        self._to_server.close()
        self._to_client.close()
        self._network.forget(self)

    def _note(self, source: str, target: str, message: _Message) -> None:
        data = message.data if isinstance(message, _Frame) else b""
        self._network.wires.trace.note(
            f"{source} → {target} {self._port} {type(message).__name__[1:].lower()}", data
        )
