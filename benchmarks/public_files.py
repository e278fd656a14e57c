"""How many devices the recommender's public files can serve: each opens a connection, asks for the
index, and leaves.

::

    python benchmarks/public_files.py --devices 2000

First all at once, then one after another as fast as 50 of them at a time go. Clients and server
share this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import tempfile
import time
from pathlib import Path

from hdpmf.common.data import IdIndex, RatingScale
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.lab.simulate.deploy import free_port
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.publish import PublicFiles
from hdpmf.untrusted.service.website import serve_website


async def poll(port: int, trust: ssl.SSLContext, etag: str, gate: asyncio.Semaphore) -> int:
    """One device's look; the status of the answer."""
    async with gate:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trust, server_hostname="localhost"
        )
        ask = (
            f"GET /index.json HTTP/1.1\r\nhost: localhost\r\nif-none-match: {etag}\r\n"
            "connection: close\r\n\r\n"
        )
        writer.write(ask.encode())
        line = await reader.readline()
        await reader.read()
        writer.close()
        return int(line.split()[1])


async def crowd(
    devices: int, at_once: int, port: int, trust: ssl.SSLContext, etag: str
) -> tuple[float, dict[int, int]]:
    """Seconds that all devices take, and how many got which status."""
    gate, begin = asyncio.Semaphore(at_once), time.perf_counter()
    found = await asyncio.gather(
        *(poll(port, trust, etag, gate) for _ in range(devices)), return_exceptions=True
    )
    statuses = [status if isinstance(status, int) else 0 for status in found]
    return time.perf_counter() - begin, {
        status: statuses.count(status) for status in sorted(set(statuses))
    }


def main() -> None:
    """Print one line for each way."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=2000)
    devices = parser.parse_args().devices
    with tempfile.TemporaryDirectory() as folder:
        table = catalogue_table(IdIndex(range(3706)), RatingScale(1.0, 5.0, 1.0))
        service = ServiceFolder.create(
            Path(folder) / "shop", Config(name="shop", port=free_port()), table
        )
        PublicFiles(service).write()
        with serve_website(service):
            trust = ssl.create_default_context(cafile=str(service.tls_folder / "authority.pem"))
            for etag in ('"other"', "*"):
                for at_once in (devices, 50):
                    seconds, statuses = asyncio.run(
                        crowd(devices, at_once, service.config.port, trust, etag)
                    )
                    print(
                        f"{devices} devices, {at_once} at once: {seconds:.1f} s, "
                        f"{devices / seconds:.0f}/s, {statuses}"
                    )


if __name__ == "__main__":
    main()
