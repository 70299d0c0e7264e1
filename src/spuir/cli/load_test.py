"""``spuir load-test``: put load on a decision service and measure it."""

import json
import os
from typing import Any

import click

from spuir.cli import options
from spuir.errors import MissingExtraError
from spuir.service.clients.load_plan import LoadPlan


@click.command("load-test")
@options.from_fields(LoadPlan)
@options.JSON
def load_test(*, as_json: bool, **given: Any) -> None:
    """Put load on a decision service, and print rates and latencies.

    The load ends after --requests or --seconds, whichever comes first. With --rate, requests arrive at fixed times
    and latencies count from these, so that a stall is not hidden. An API key is read from the environment variable
    SPUIR_API_KEY.
    """
    import asyncio

    plan = LoadPlan(**given)
    try:
        from spuir.service.clients.load import put_load
    except ImportError as missing:
        rule, remedy = "a load test needs it", 'run pip install "spuir[service]"'
        raise MissingExtraError("load test", f"no {missing.name}", rule, remedy) from None
    report = asyncio.run(put_load(plan, os.environ.get("SPUIR_API_KEY")))
    click.echo(json.dumps(report.to_dict(), indent=2) if as_json else str(report))
