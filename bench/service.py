"""The service under load: so many clients at once for so long, over loopback, against the real command.

    python -m bench.service                          # 64 clients for a minute on the packaged encoder
    python -m bench.service --clients 8 --seconds 5  # a short trial

Every client sends a request as soon as it has the answer to the one before. A probe asks /health four times a second.
Prints requests, errors, latency, and processor time and memory of the service (on Linux).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.data.loading import open_dataset

_LIMIT = 1.2  # times the length of the load, after which a service that does not answer is given up


@dataclass
class Load:
    """What was measured; times in milliseconds, memory in MiB.

    Attributes:
        requests: answers with status 200.
        errors: how many of each other status or failure.
        latencies: of each of the requests.
        health: latencies of /health meanwhile.
        processor_seconds: what the service had of the processors, which tells a slow service from a busy machine.
        memory: of the service, resident.
    """

    clients: int
    seconds: float
    texts: int
    errors: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    processor_seconds: float | None = None
    memory: dict[str, float | None] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The same, with latencies summed up."""
        numbers = asdict(self)
        for name in ("latencies", "health"):
            numbers[name] = _quantiles(numbers[name])
        return {**numbers, "requests": len(self.latencies), "requests_a_second": len(self.latencies) / self.seconds}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="a saved classifier (default: one is fitted to the demo intents)")
    parser.add_argument("--clients", type=int, default=64, help="clients at once, 1 to 256 (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="length, up to 600 (default: %(default)s)")
    parser.add_argument("--texts", type=int, default=1, help="texts a request, 1 to 256 (default: %(default)s)")
    parser.add_argument("--explain", type=float, default=0.05, help="share of /explain (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if not (1 <= options.clients <= 256 and 0 < options.seconds <= 600 and 1 <= options.texts <= 256):
        parser.error("out of bounds: 1 to 256 clients, up to 600 seconds, 1 to 256 texts")
    with tempfile.TemporaryDirectory() as scratch:
        load = _measured(options, options.folder or _fitted(Path(scratch) / "classifier"))
    print(json.dumps(load.as_dict(), indent=2) if options.json else _as_text(load))
    return 1 if load.errors else 0


def _fitted(folder: Path) -> Path:
    """Five of the demo's test classes, five examples each, on the packaged encoder. The pool need not be trained."""
    from openprompt_meta.classifier.classifier import MetaPromptClassifier

    split = open_dataset(RunConfig().dataset).test
    by_class: dict[str, list[str]] = {}
    for text, label in zip(split.texts, split.labels, strict=True):
        by_class.setdefault(label, []).append(text)
    chosen = [(text, label) for label in sorted(by_class)[:5] for text in by_class[label][:5]]
    texts, labels = zip(*chosen, strict=True)
    MetaPromptClassifier().fit(texts, labels).save_pretrained(folder)
    return folder


def _measured(options: argparse.Namespace, folder: str | Path) -> Load:
    command = [
        sys.executable,
        "-m",
        "openprompt_meta",
        "serve",
        str(folder),
        "--port",
        "0",
        "--requests-per-minute",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:  # noqa: S603 - our own command
        try:
            match = re.search(r"http://127\.0\.0\.1:\d+", service.stdout.readline() if service.stdout else "")
            if match is None:
                raise SystemExit("the service did not start")
            return asyncio.run(_loaded(match[0], service.pid, options))
        finally:
            service.terminate()
            service.wait(60)


async def _loaded(address: str, process: int, options: argparse.Namespace) -> Load:
    load = Load(options.clients, options.seconds, options.texts)
    texts = open_dataset(RunConfig().dataset).test.texts
    limits = httpx.Limits(max_connections=options.clients + 1, max_keepalive_connections=options.clients + 1)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=60, trust_env=False) as client:
        for path, body in (("/predict", {"texts": [texts[0]]}), ("/explain", {"text": texts[0]})):
            (await client.post(path, json=body)).raise_for_status()  # what is made on first use is made before
        load.memory["before"] = _memory(process, "VmRSS")
        spent = _processor_seconds(process)
        end = perf_counter() + options.seconds
        work = [_client(client, load, texts, end, options, seed) for seed in range(options.clients)]
        await asyncio.wait_for(asyncio.gather(_probe(client, load, end), *work), _LIMIT * options.seconds + 60)
        if spent is not None:
            load.processor_seconds = (_processor_seconds(process) or 0) - spent
        load.memory["after"] = _memory(process, "VmRSS")
        load.memory["highest"] = _memory(process, "VmHWM")
    return load


async def _client(
    client: httpx.AsyncClient, load: Load, texts: tuple[str, ...], end: float, options: argparse.Namespace, seed: int
) -> None:
    draw = random.Random(seed)  # noqa: S311 - no secret
    while perf_counter() < end:
        path: str
        body: dict[str, Any]
        if draw.random() < options.explain:
            path, body = "/explain", {"text": draw.choice(texts)}
        else:
            path, body = "/predict", {"texts": draw.choices(texts, k=options.texts)}
        await _timed(client.post(path, json=body), load.latencies, load)


async def _probe(client: httpx.AsyncClient, load: Load, end: float) -> None:
    while perf_counter() < end:
        await _timed(client.get("/health"), load.health, load)
        await asyncio.sleep(0.25)


async def _timed(request: Any, latencies: list[float], load: Load) -> None:
    began = perf_counter()
    try:
        answer = await request
    except httpx.HTTPError as error:
        load.errors[type(error).__name__] += 1
        return
    if answer.status_code == 200:
        latencies.append(1000 * (perf_counter() - began))
    else:
        load.errors[str(answer.status_code)] += 1


def _quantiles(values: list[float]) -> dict[str, float]:
    if len(values) < 2:
        return {}
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": cuts[49], "p90": cuts[89], "p99": cuts[98], "max": max(values)}


def _memory(process: int, what: str) -> float | None:
    try:
        status = Path(f"/proc/{process}/status").read_text("utf-8")
    except OSError:
        return None
    match = re.search(rf"^{what}:\s+(\d+) kB", status, flags=re.MULTILINE)
    return int(match[1]) / 1024 if match else None


def _processor_seconds(process: int) -> float | None:
    try:
        fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # user and system


def _as_text(load: Load) -> str:
    numbers = load.as_dict()

    def line(values: dict[str, float]) -> str:
        return ", ".join(f"{name} {value:.0f} ms" for name, value in values.items()) or "too few"

    memory = ", ".join(f"{name} {value:.0f} MiB" for name, value in load.memory.items() if value is not None)
    return "\n".join(
        [
            f"{load.clients} clients for {load.seconds:g} s, {load.texts} text(s) a request",
            f"requests  {numbers['requests']} ({numbers['requests_a_second']:.1f} a second)",
            f"errors    {sum(load.errors.values())} {dict(load.errors) if load.errors else ''}".rstrip(),
            f"latency   {line(numbers['latencies'])}",
            f"/health   {line(numbers['health'])}",
            f"processor {'unknown' if load.processor_seconds is None else f'{load.processor_seconds:.1f} s'}",
            f"memory    {memory or 'unknown'}",
        ]
    )


if __name__ == "__main__":
    raise SystemExit(main())
