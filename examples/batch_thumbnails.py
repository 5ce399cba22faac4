"""One function over many items: skips, failures, values in order, and another run over what failed.

Run it with `python examples/batch_thumbnails.py`. It prints:

    12 images: 9 done, 1 skipped, 2 failed
    0: 3x2
    1: 4x2
    failed: 5 (ValueError: image 5 is broken), 10 (ValueError: image 10 is broken)
    tried again: 2 done
"""

import asyncio
import secrets
from dataclasses import dataclass

from holdfast import App, RetryPolicy, Skip

app = App("images")
mended = False


@dataclass
class Image:
    number: int
    width: int


@app.batch(results=True, concurrency=8, retry=RetryPolicy(max_attempts=2, initial_delay=0))
async def thumbnail(image: Image) -> str:
    if image.number == 7:
        raise Skip("it is small enough")
    if image.number % 5 == 0 and image.number and not mended:
        raise ValueError(f"image {image.number} is broken")
    return f"{image.width}x2"


async def main() -> None:
    global mended
    images = [Image(number, number % 3 + 3) for number in range(12)]
    async with app, app.worker():
        run = await thumbnail.options(key=f"nightly-{secrets.token_hex(4)}").start(images)
        result = await run.result()
        done = f"{result.succeeded} done, {result.skipped} skipped, {result.failed} failed"
        print(f"{result.total} images: {done}")
        async for item in run.committed():
            if item.seq < 2:
                print(f"{item.seq}: {item.value}")
        failed = [f"{item.seq} ({item.error})" for item in await run.failed()]
        print("failed:", ", ".join(failed))
        mended = True
        again = await run.retry_failed()
        print(f"tried again: {(await again.result()).succeeded} done")


asyncio.run(main())
