"""A server with OpenAI's embedding interface that costs next to nothing: one vector, written beforehand, for each text.

`python benchmarks/instant_provider.py --port 9001 --width 384`
"""

import argparse
import asyncio
import json
import random


class InstantProvider(asyncio.Protocol):
    """One connection: reads requests, answers each at once."""

    vector = "[]"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.received = bytearray()

    def data_received(self, data: bytes) -> None:
        self.received += data
        while (end := self.received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.received[:end]).lower()
            size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            if len(self.received) < end + 4 + size:
                return
            body = json.loads(self.received[end + 4 : end + 4 + size])
            del self.received[: end + 4 + size]
            self.answer(len(body["input"]))

    def answer(self, texts: int) -> None:
        rows = ",".join(f'{{"object":"embedding","index":{index},"embedding":{self.vector}}}' for index in range(texts))
        content = f'{{"object":"list","model":"instant","usage":{{"prompt_tokens":1}},"data":[{rows}]}}'.encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        self.transport.write(head.encode() + content)  # type: ignore[attr-defined]


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(InstantProvider, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--width", type=int, default=384)
    arguments = parser.parse_args()
    seeded = random.Random(7)
    InstantProvider.vector = json.dumps([round(seeded.gauss(0, 1), 6) for _ in range(arguments.width)])
    asyncio.run(serve(arguments.port))
