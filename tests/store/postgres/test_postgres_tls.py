"""Encryption: whom a server's certificate convinces, and what is said where it does not."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.core.errors import ConfigurationError, StoreUnavailableError
from holdfast.store.postgres import PostgresStore

PEM = Path(__file__).with_name("localhost.pem")  # a key, and a certificate that it signed itself


@pytest_asyncio.fixture
async def port() -> AsyncIterator[int]:
    """Of a server that encrypts, and hangs up then."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(b"S")
        try:
            await writer.start_tls(context)
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


@pytest.mark.parametrize(
    ("host", "root", "why"),
    [
        ("127.0.0.1", str(PEM), "not valid for '127.0.0.1'"),
        ("localhost", "system", "self-signed"),
    ],
)
async def test_a_certificate_that_does_not_hold_is_a_mistake_of_the_setup(
    port: int, host: str, root: str, why: str
) -> None:
    store = PostgresStore(f"postgresql://u@{host}:{port}/o?sslmode=verify-full&sslrootcert={root}")
    with pytest.raises(ConfigurationError, match=f"certificate .* does not hold: .*{why}.*sslrootcert"):
        await store.open()


@pytest.mark.parametrize("root", [str(PEM), "system"])
async def test_a_certificate_holds_by_the_file_that_is_named_or_by_those_of_the_system(
    port: int, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    store = PostgresStore(f"postgresql://u@localhost:{port}/o?sslmode=verify-full&sslrootcert={root}")
    with pytest.raises(StoreUnavailableError, match=r"clos|reset"):
        await store.open()


async def test_a_file_that_cannot_be_read_is_named(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, missing = f"postgresql://u@localhost:{port}/o", tmp_path / "missing.pem"
    with pytest.raises(ConfigurationError, match=r"missing.pem \(sslkey\) cannot be read"):
        await PostgresStore(f"{url}?sslmode=require&sslcert={PEM}&sslkey={missing}").open()
    monkeypatch.setenv("PGSSLMODE", "verify-ca")
    monkeypatch.setenv("PGSSLROOTCERT", str(missing))
    with pytest.raises(ConfigurationError, match=r"missing.pem \(sslrootcert\) cannot be read"):
        await PostgresStore(url).open()


async def test_the_certificates_of_the_system_are_no_file_that_could_be_missing(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="No such file"):
        await PostgresStore(f"postgresql://u@/o?host={tmp_path}&sslmode=verify-full&sslrootcert=system").open()
