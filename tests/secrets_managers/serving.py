"""Serves WSGI applications on a loopback port, and lets them fail."""

from __future__ import annotations

import datetime as dt
import ipaddress
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

Fault = Literal["throttle", "slow", "broken", "huge", "redirect", "server_error"]


class Faults:
    """Answers in place of an application while there is a fault, and records the requests that arrive."""

    def __init__(self, app: App, throttled: Callable[[], Response]) -> None:
        self._app = app
        self._throttled = throttled
        self._fault: Fault | None = None
        self._over = threading.Event()
        self.requests: list[str] = []

    @contextmanager
    def during(self, fault: Fault) -> Iterator[None]:
        self._fault = fault
        self._over.clear()
        try:
            yield
        finally:
            self._fault = None
            self._over.set()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        request = Request(environ)
        self.requests.append(f"{request.method} {request.path}")
        if self._fault is None:
            return self._app(environ, start)
        return self._faulty(request)(environ, start)

    def _faulty(self, request: Request) -> Response:
        request.get_data()
        if self._fault == "throttle":
            return self._throttled()
        if self._fault == "slow":
            self._over.wait(30)
        if self._fault == "huge":
            return Response(b"x" * (1 << 20) for _ in range(4))
        if self._fault == "redirect":
            return Response(status=307, headers={"Location": f"{request.host_url}elsewhere"})
        return Response(b"<p>not what was expected</p>", 502 if self._fault == "server_error" else 200)


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - the name in werkzeug
        pass


@contextmanager
def served(app: App, tls: tuple[Path, Path] | None = None, port: int = 0) -> Iterator[str]:
    """Serves in a thread, with the certificate and key of `tls`, and returns the address."""
    server = make_server(
        "127.0.0.1",
        port,
        app,
        threaded=True,
        request_handler=_Quiet,
        ssl_context=(str(tls[0]), str(tls[1])) if tls else None,
    )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"{'https://localhost' if tls else 'http://127.0.0.1'}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def certificates(folder: Path) -> tuple[Path, tuple[Path, Path]]:
    """Makes a CA and a certificate of localhost. Returns the files of the CA, and of the certificate and its key."""
    of_ca, of_host = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = (
        _certificate("test-ca", of_ca)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(False, False, False, False, False, True, True, False, False), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(of_ca.public_key()), critical=False)
        .sign(of_ca, hashes.SHA256())
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    host = (
        _certificate("localhost", of_host)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(of_ca.public_key()), critical=False)
        .sign(of_ca, hashes.SHA256())
    )
    files = {
        "ca.pem": ca.public_bytes(serialization.Encoding.PEM),
        "host.pem": host.public_bytes(serialization.Encoding.PEM),
        "key.pem": of_host.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder / "ca.pem", (folder / "host.pem", folder / "key.pem")


def _certificate(name: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named("test-ca"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=2))
    )
