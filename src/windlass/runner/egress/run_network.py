"""The network of a run: it accepts the connections and the look-ups of a run, whose network leads nowhere else.

In the network of the run each address is a local one. The run listens on the ports of `ports_of`, before it has run
code of the project, and sends the sockets to the server. So the server sees which address and port a connection is for.
"""

# See docs/decisions/security.md#a-run-has-a-network-of-its-own

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import select
import socket
import struct
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass.aio import cancelled
from windlass.kickoffs.egress import LONGEST_NAME, NAME
from windlass.kickoffs.events import CONNECTION
from windlass.runner.egress.dns import (
    AAAA,
    NO_ERROR,
    NO_SUCH_NAME,
    SERVER_FAILURE,
    A,
    BadQuestion,
    read_question,
)
from windlass.runner.egress.forwarding import Forwarding, dial, never_lingering, reset
from windlass.runner.egress.run_proxy import new_token, refuse
from windlass_child.protocol.messages import Event, Warned
from windlass_child.protocol.truncation import beginning

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Mapping, Sequence
    from typing import Any

    from windlass.ip_addresses import Address
    from windlass.kickoffs.egress import Egress
    from windlass.runner.egress.dns import Question
    from windlass.runner.egress.outside import Outside
    from windlass.runner.egress.proxy_requests import ProxyRequest
    from windlass.runner.egress.run_proxy import RunProxy
    from windlass.runner.run_spec import Report
    from windlass_child.masking.secret_values import SecretValues

DNS = 53
FORBIDDEN, BAD_GATEWAY = 403, 502
USUAL_PORTS = (
    22, 25, 80, 110, 143, 389, 443, 465, 587, 636, 853, 993, 995, 1433, 1521, 1883, 2525, 3306, 3307, 4222, 4317, 4318,
    5432, 5433, 5671, 5672, 6333, 6334, 6379, 6380, 6432, 6650, 7687, 8443, 8530, 8883, 9042, 9092, 9093, 9200, 9243,
    11211, 11434, 19530, 26257, 27017, 50051,
)  # fmt: skip
"""Ports of services that crews use. Ports on which crews start servers of their own, such as 8000, are left out."""
MOST_PORTS = 160
PORT_IN_VALUE = re.compile(r"(?:[\w\])-]):(\d{2,5})(?![\w.:])", re.ASCII)
LONGEST_VALUE = 4096

MOST_OPEN = 500
"""Connections and look-ups of a run at once. Further ones are refused."""
MOST_AT_ONCE = 16
EACH_SECOND, BURST = 200, 400
"""Connections and look-ups of a run. Further ones wait."""
MOST_NAMES = 2000
MOST_EVENTS = 200
MOST_WARNINGS = 10
MOST_SHOWN = 200
"""Characters of a host in an event."""
NAME_SECONDS = 30.0
"""How long addresses of a name are given without another look-up."""
LAST_BYTES_SECONDS = 2.0
"""The time after the end of a run in which bytes that it sent may still go out."""
NOT_PERMITTED = "The egress of the crew does not permit it: Settings, Egress."
DATAGRAM = 1500
PACKET_INFO = struct.Struct("16si")
DESTINATIONS = {(socket.IPPROTO_IP, 8), (socket.IPPROTO_IPV6, 50)}
"""IP_PKTINFO and IPV6_PKTINFO: the address that a datagram was sent to."""
MOST_KEPT = 32
"""Addresses of one name that count as this name."""
STAND_INS = ipaddress.IPv4Network("198.18.0.0/15")
"""Addresses of no host. A run gets one for a name that only the proxy of the server can look up."""
FEW_SECONDS = 10.0
"""How long a connection for look-ups may be idle."""
PORTS = range(1, 1 << 16)


def ports_of(egress: Egress, environment: Mapping[str, str]) -> list[int]:
    """Returns the ports on which a run can reach others: the usual ones, those that the egress names, and those in
    values of its variables, such as 6390 of redis://host:6390/0. On others a connection is refused at once.
    """
    named = [port for name, value in environment.items() for port in _ports_in(name, value)]
    found = dict.fromkeys([DNS, *sorted(egress.ports), *USUAL_PORTS, *named])
    return [port for port in found if port in PORTS][:MOST_PORTS]


def _ports_in(name: str, value: str) -> Iterable[int]:
    if name.endswith("PORT") and re.fullmatch(r"\d{2,5}", value, re.ASCII):
        return [int(value)]
    return map(int, PORT_IN_VALUE.findall(value[:LONGEST_VALUE]))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A connection that a run wants. `host` is a name or an address, as it is reported. `address` is the one that it is
    for, None for a name without one. `names` are those that the address has for this run. `permitted` are the addresses
    that may be tried.
    """

    host: str
    port: int
    address: Address | None
    names: Collection[str]
    permitted: Sequence[Address]


class RunNetwork:
    """Connects one process of crews with the hosts that its egress permits. Its connections arrive at the sockets that
    the process has sent, or with `proxy` there.
    """

    def __init__(self, egress: Egress, outside: Outside, proxy: RunProxy | None = None) -> None:
        self._proxy, self._token = proxy, new_token()
        self._egress = egress
        self._outside = outside
        self._listeners: dict[int, socket.socket] = {}
        self._ready: select.epoll | None = None
        self._names: OrderedDict[str, tuple[float, list[Address]]] = OrderedDict()
        self._names_of: dict[Address, dict[str, None]] = {}
        self._stand_ins: dict[Address, str] = {}
        self._next_stand_in = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._forwardings: set[Forwarding] = set()
        self._room, self._refilled = float(BURST), time.monotonic()
        self._pause: asyncio.TimerHandle | None = None
        self._news: asyncio.Queue[Event | Warned | None] = asyncio.Queue()
        self._secrets: SecretValues | None = None
        self._accepts = False
        self._events = 0
        self._warned: set[str] = set()
        self._unresolved: set[str] = set()

    def take(self, descriptors: list[int]) -> list[int]:
        """Takes the listening sockets of the run, once. Returns the descriptors that are none, or all later ones."""
        if self._ready is not None or self._proxy is not None:
            return descriptors
        self._ready = select.epoll()
        refused = []
        for descriptor in descriptors:
            try:
                given = socket.socket(fileno=descriptor)
            except OSError:
                refused.append(descriptor)
                continue
            if not is_listener(given):
                refused.append(given.detach())
                continue
            given.setblocking(False)
            self._listeners[given.fileno()] = given
            self._ready.register(given, select.EPOLLIN)
        if self._accepts:
            self._watch()
        return refused

    @property
    def is_connected(self) -> bool:
        """Whether the process has sent the sockets: its network is not that of the machine."""
        return bool(self._listeners) or self._proxy is not None

    @property
    def variables(self) -> dict[str, str]:
        """The variables by which clients in the process find the proxy; none without one."""
        return {} if self._proxy is None else self._proxy.variables(self._token)

    @contextlib.asynccontextmanager
    async def during(self, report: Report, secrets: SecretValues) -> AsyncIterator[None]:
        """Accepts connections in the block, and reports them: those of one run. At its end all are closed."""
        self._secrets, self._events, self._warned, self._unresolved = secrets, 0, set(), set()
        self._accepts = True
        self._watch()
        if self._proxy is not None:
            self._proxy.serve(self._token, self.take_request)
        reporting = asyncio.create_task(self._report_all(report))
        try:
            yield
            self._stop_accepting()
            await self._end_all()
            self._news.put_nowait(None)
            await reporting
        finally:
            self._stop_accepting()
            await cancelled(reporting, *self._tasks)
            self._news = asyncio.Queue()

    async def _report_all(self, report: Report) -> None:
        while (message := await self._news.get()) is not None:
            await report(message)

    async def _end_all(self) -> None:
        """Lets bytes that the run has sent reach their hosts, for a moment, and ends all connections."""
        for forwarding in self._forwardings:
            forwarding.finish()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_BYTES_SECONDS)
        await cancelled(*self._tasks)

    def close(self) -> None:
        """Closes the sockets of the run. They are not used after that."""
        self._stop_accepting()
        if self._ready is not None:
            self._ready.close()
        for listener in self._listeners.values():
            listener.close()
        self._listeners = {}

    def _watch(self) -> None:
        if self._ready is not None:
            asyncio.get_running_loop().add_reader(self._ready.fileno(), self._accept_some)

    def _stop_accepting(self) -> None:
        if self._proxy is not None:
            self._proxy.forget(self._token)
        if self._accepts and self._ready is not None:
            asyncio.get_running_loop().remove_reader(self._ready.fileno())
        if self._pause is not None:
            self._pause.cancel()
        self._accepts, self._pause = False, None

    def _accept_some(self) -> None:
        assert self._ready is not None  # noqa: S101 - it is watched
        for number, _ in self._ready.poll(0, MOST_AT_ONCE):
            listener = self._listeners[number]
            with contextlib.suppress(OSError):  # the other side has given up
                if listener.type == socket.SOCK_DGRAM:
                    self._take_question(listener)
                else:
                    self._accept(listener)
        if wait := self._wait():
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._ready.fileno())
            self._pause = loop.call_later(wait, self._watch)

    def _wait(self) -> float:
        """Returns the seconds until the run may have a further connection."""
        now = time.monotonic()
        self._room, self._refilled = min(BURST, self._room + (now - self._refilled) * EACH_SECOND), now
        return max(0.0, -self._room / EACH_SECOND)

    def _accept(self, listener: socket.socket) -> None:
        given, _ = listener.accept()
        try:
            never_lingering(given)
            given.setblocking(False)
            host, port = given.getsockname()[:2]
            address = plain(host)
        except BaseException:
            reset(given)
            raise
        self._start(self._answer_stream(given) if port == DNS else self._connect(given, address, port), given)

    def _take_question(self, listener: socket.socket) -> None:
        data, ancillary, _, sender = listener.recvmsg(DATAGRAM, socket.CMSG_SPACE(PACKET_INFO.size))
        self._start(self._answer(listener, data, ancillary, sender))

    def _start(self, work: Coroutine[Any, Any, None], given: socket.socket | None = None) -> None:
        self._room -= 1
        if len(self._tasks) >= MOST_OPEN:
            work.close()
            if given is not None:
                reset(given)
                self._warn(
                    "connections_refused",
                    f"The run had {MOST_OPEN} connections at once. Further ones were refused. Close connections that "
                    "are not used.",
                )
            return
        task = asyncio.create_task(closing_at_end(work, given))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, given: socket.socket, address: Address, port: int) -> None:
        names = self._names_of.get(address, {})
        permitted = [one for one in self._candidates(address) if await self._permits(one, port, names)]
        await self._pass(given, Wanted(next(iter(names), str(address)), port, address, names, permitted))

    def take_request(self, given: socket.socket, asked: ProxyRequest) -> None:
        """Takes a connection of the run to the proxy, which names its host."""
        self._start(self._serve(given, asked), given)

    async def _serve(self, given: socket.socket, asked: ProxyRequest) -> None:
        await asyncio.sleep(self._wait())
        at, names = time.time(), [asked.host]
        try:
            address = plain(asked.host)
        except ValueError:
            try:
                found = await self._look_up(asked.host) if self._may_look_up(asked.host) else []
            except OSError as error:
                fault = error.strerror or "the look-up of its name failed"
                self._report(asked.host, None, asked.port, at, allowed=True, fault=fault)
                await refuse(given, BAD_GATEWAY, f"{self._masked(asked.host)}: {fault}")
                return
        else:
            found, names = [address], [*self._names_of.get(address, {})]
        permitted = [one for one in found if await self._permits(one, asked.port, names)]
        first = next(iter(permitted or found), None)
        await self._pass(given, Wanted(asked.host, asked.port, first, names, permitted), asked)

    def _may_look_up(self, name: str) -> bool:
        return is_name(name) and self._egress.resolves(name)

    async def _pass(self, given: socket.socket, wanted: Wanted, asked: ProxyRequest | None = None) -> None:
        """Forwards the connection to the first permitted address that answers, and reports it. Ends it if there is
        none. `asked` is the request to the proxy, which is answered.
        """
        at, forwarding, to, fault = time.time(), Forwarding(), None, ""
        address, allowed = wanted.address, wanted.address in wanted.permitted
        self._forwardings.add(forwarding)
        try:
            if address is not None and allowed:
                to = await self._connected(address, wanted)
                request, answer = (asked.first, asked.answer) if asked else (b"", b"")
                await forwarding.run(given, to, request=request, answer=answer)
        except OSError as error:
            fault = error.strerror or "it did not answer"
        finally:
            self._forwardings.discard(forwarding)
            if asked is None or to is not None:
                reset(given)
            shown = None if address in self._stand_ins else address
            self._report(wanted.host, shown, wanted.port, at, allowed=allowed, forwarding=forwarding, fault=fault)
        words = fault if allowed else self._refuse(wanted.host, wanted.port)
        if asked is not None and to is None:
            await refuse(given, BAD_GATEWAY if allowed else FORBIDDEN, words)

    async def _connected(self, address: Address, wanted: Wanted) -> socket.socket:
        """Returns a connection to the host, through the proxy of the server or from this machine. Raises OSError."""
        proxy, host, port = self._outside.proxy, self._stand_ins.get(address), wanted.port
        if proxy is None or (host is None and proxy.is_direct(wanted.names, port, address)):
            return await dial(wanted.permitted, port)
        if host is None:
            by_name = (one for one in wanted.names if self._egress.permits_name(one, port, public=True))
            host = next(by_name, str(address))
        return await proxy.connect(await self._outside.addresses(proxy.host), host, port)

    def _candidates(self, address: Address) -> list[Address]:
        """Returns the address, and those that were given to the run for the same names. The run does not learn that one
        does not answer, so the server tries the others.
        """
        others = [one for name in self._names_of.get(address, ()) for one in self._names[name][1]]
        return list(dict.fromkeys([address, *(one for one in others if one not in self._stand_ins)]))

    async def _permits(self, address: Address, port: int, names: Iterable[str]) -> bool:
        if address in self._stand_ins:
            return self._egress.permits_name(self._stand_ins[address], port, public=False)
        own = await self._outside.is_own(address, port)
        return self._egress.permits(str(address), port, [*names], own=own)

    async def _answer(
        self, listener: socket.socket, data: bytes, ancillary: list[tuple[int, int, bytes]], sender: Any
    ) -> None:
        """Answers a datagram from the address that it was sent to: a resolver accepts no other answer."""
        answer = await self._answer_to(data)
        if answer is not None:
            with contextlib.suppress(OSError):  # the run has ended, or does not read
                listener.sendmsg([answer], [one for one in ancillary if one[:2] in DESTINATIONS], 0, sender)

    async def _answer_stream(self, given: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError, TimeoutError, EOFError):
            while True:
                async with asyncio.timeout(FEW_SECONDS):
                    size = int.from_bytes(await received(given, 2), "big")
                    answer = await self._answer_to(await received(given, size))
                    if answer is not None:
                        await loop.sock_sendall(given, len(answer).to_bytes(2, "big") + answer)

    async def _answer_to(self, data: bytes) -> bytes | None:
        try:
            question = read_question(data)
        except BadQuestion as bad:
            return bad.answer
        if not is_name(question.name):
            return question.answer(NO_SUCH_NAME)
        if not self._egress.resolves(question.name):
            if question.name not in self._unresolved and len(self._unresolved) < MOST_EVENTS:
                self._unresolved.add(question.name)  # a resolver asks for each type of record, and again
                self._report(question.name, None, None, time.time(), allowed=False)
                self._refuse(question.name, None)
            return question.answer(NO_SUCH_NAME)
        if question.record not in (A, AAAA):
            return await self._outside.passed_on(data) or question.answer(SERVER_FAILURE)
        return await self._addresses(question)

    async def _addresses(self, question: Question) -> bytes:
        try:
            found = await self._look_up(question.name)
        except socket.gaierror as error:
            return question.answer(SERVER_FAILURE if error.errno == socket.EAI_AGAIN else NO_SUCH_NAME)
        except OSError:
            return question.answer(SERVER_FAILURE)
        return question.answer(NO_ERROR, found)

    async def _look_up(self, name: str) -> list[Address]:
        """Returns the addresses of a name, and keeps them: a connection to one of them is one to that name."""
        at, found = self._names.get(name, (0.0, []))
        if not found or time.monotonic() - at > NAME_SECONDS:
            try:
                new = await self._outside.addresses(f"{name}.")
            except OSError:
                if not await self._is_for_the_proxy(name):
                    raise
                new = [self._stand_in(name)]
            # Those of earlier answers go on: the run may still use them.
            _, known = self._names.get(name, (0.0, []))
            found = list(dict.fromkeys([*new, *known]))[:MOST_KEPT]
            self._forget(name)
            self._names[name] = time.monotonic(), found
            for one in found:
                self._names_of.setdefault(one, {})[name] = None
            if len(self._names) > MOST_NAMES:
                self._forget(next(iter(self._names)))
        return found

    async def _is_for_the_proxy(self, name: str) -> bool:
        """Returns whether a name that the server can't look up is one that a run may reach through the proxy."""
        permitted = self._egress.permits_name(name, None, public=False)
        return permitted and await self._outside.only_the_proxy_knows(name)

    def _stand_in(self, name: str) -> Address:
        """Returns the address that stands for a name, the same each time."""
        _, known = self._names.get(name, (0.0, []))
        found = next((one for one in known if self._stand_ins.get(one) == name), None)
        if found is None:
            self._next_stand_in = self._next_stand_in % (STAND_INS.num_addresses - 1) + 1
            found = STAND_INS[self._next_stand_in]
            self._stand_ins[found] = name
            if len(self._stand_ins) > MOST_NAMES:
                del self._stand_ins[next(iter(self._stand_ins))]
        return found

    def _forget(self, name: str) -> None:
        _, found = self._names.pop(name, (0.0, []))
        for one in found:
            names = self._names_of.get(one, {})
            names.pop(name, None)
            if not names:
                self._names_of.pop(one, None)

    def _report(
        self,
        host: str,
        address: Address | None,
        port: int | None,
        at: float,
        *,
        allowed: bool,
        forwarding: Forwarding | None = None,
        fault: str = "",
    ) -> None:
        if self._events >= MOST_EVENTS or (not allowed and self._is_search(host)):
            return
        self._events += 1
        fault = fault or ("" if allowed else NOT_PERMITTED)
        payload = {
            "host": self._masked(host),
            "address": None if address is None else str(address),
            "port": port,
            "allowed": allowed,
            "sent": forwarding.sent if forwarding else 0,
            "received": forwarding.received if forwarding else 0,
            "seconds": round(time.time() - at, 3),
        }
        self._news.put_nowait(Event(CONNECTION, at, {**payload, **({"error": fault} if fault else {})}))

    def _refuse(self, host: str, port: int | None) -> str:
        """Warns of a host that is not permitted, once. Returns the words."""
        place = self._masked(host if port is None else f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        words = f"The egress of this crew does not permit {place}: Settings, Egress."
        if host not in self._warned and len(self._warned) < MOST_WARNINGS and not self._is_search(host):
            self._warned.add(host)
            self._warn("egress_refused", words)
        return words

    def _is_search(self, name: str) -> bool:
        """Returns whether a resolver has made this name, of one that was refused and a domain of the machine."""
        return any(name.startswith(f"{one}.") for one in self._warned)

    def _warn(self, code: str, message: str) -> None:
        self._news.put_nowait(Warned(code, message))

    def _masked(self, text: str) -> str:
        shown = text if self._secrets is None else self._secrets.masked(text)
        return beginning(shown, MOST_SHOWN)


async def closing_at_end(work: Coroutine[Any, Any, None], given: socket.socket | None) -> None:
    try:
        await work
    finally:
        if given is not None:
            given.close()


async def received(given: socket.socket, size: int) -> bytes:
    """Returns so many bytes. Raises EOFError."""
    data, loop = b"", asyncio.get_running_loop()
    while len(data) < size:
        more = await loop.sock_recv(given, size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def is_listener(given: socket.socket) -> bool:
    """Returns whether a socket of a run is one that listens for connections, or for look-ups."""
    try:
        if given.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        if given.type == socket.SOCK_DGRAM:
            return bool(given.getsockname()[1] == DNS)
        listens = given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        return given.type == socket.SOCK_STREAM and given.proto == socket.IPPROTO_TCP and bool(listens)
    except OSError:
        return False


def is_name(host: str) -> bool:
    return bool(NAME.fullmatch(host)) and len(host) <= LONGEST_NAME and not host.startswith("*")


def plain(host: str) -> Address:
    """Returns the address without a zone. An IPv4 address comes in one of IPv6. Raises ValueError."""
    address = ipaddress.ip_address(host.partition("%")[0])
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address
