"""The loopback provider with one more way to misbehave: `hold` answers well, but only when it is told to be good again.

As a process: `python -m tests.api.holding_provider --port 9001`; see `tests.unit.ai_providers.openai_server`.
"""

import argparse
import asyncio

from tests.unit.ai_providers.openai_server import EmbeddingServer, Request


class HoldingServer(EmbeddingServer):
    """Requests that come during `hold` wait until `always` is something else, and are then answered well."""

    async def _answer(self, fault: str | None, request: Request, writer: asyncio.StreamWriter) -> bool:
        if fault != "hold":
            return await super()._answer(fault, request, writer)
        while self.always == "hold":
            await asyncio.sleep(0.02)
        return await super()._answer(None, request, writer)


async def _serve(port: int, width: int) -> None:
    server = HoldingServer(width=width)
    await server.start(port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--width", type=int, default=1536)
    arguments = parser.parse_args()
    asyncio.run(_serve(arguments.port, arguments.width))
