"""Apache Spark: a running cluster by its master address, or Spark's own threads and processes on this machine."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Self
from warnings import catch_warnings, simplefilter

from spuir.errors import InputError, MissingExtraError
from spuir.training.engines.base import Done, Item

ITEMS_PER_CORE = 2


@contextmanager
def _without_pandas_warnings() -> Iterator[None]:
    """Silence warnings of Spark about the version of pandas, which is not used here."""
    with catch_warnings():
        simplefilter("ignore", FutureWarning)
        yield


class Spark:
    """Tasks of ``mapInArrow``; Spark repeats the task of a lost executor elsewhere."""

    name = "spark"

    def __init__(self, workers: int | None = None, master: str | None = None) -> None:
        try:
            from pyspark.errors import PySparkException  # pyright: ignore[reportMissingImports]
            from pyspark.sql import SparkSession  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise MissingExtraError(
                "engine spark", "no pyspark", "it is an extra", 'run pip install "spuir[spark]"'
            ) from None
        # Without this, workers use the first python on the path, which may lack the packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = (
            SparkSession.builder.appName("spuir train")
            .master(master or f"local[{workers or '*'}]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
        )
        if master is None:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        try:
            with _without_pandas_warnings():
                self.session = builder.getOrCreate()
        except (PySparkException, RuntimeError, OSError) as failure:
            rule = f"Spark did not start ({str(failure).splitlines()[0]})"
            raise InputError(
                "engine spark", repr(master), rule, "install Java 17 or newer, or check --master"
            ) from None
        self.workers: int = max(1, self.session.sparkContext.defaultParallelism)

    def map(self, work: Callable[[Item], Done], items: Iterable[Item]) -> Iterator[Done]:
        """Yield the results in order, one wave of items after the other; each item is a partition."""
        from pyspark import cloudpickle  # pyright: ignore[reportMissingImports]

        def run(batches: Iterable[Any]) -> Iterator[Any]:
            import pickle

            import pyarrow as pa

            for batch in batches:
                for number, item in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    done = pickle.dumps(work(pickle.loads(item)), protocol=5)
                    yield pa.record_batch({"number": [number], "done": pa.array([done], pa.binary())})

        remaining = iter(items)
        context = self.session.sparkContext
        while wave := list(islice(remaining, ITEMS_PER_CORE * self.workers)):
            packed = [(number, bytearray(cloudpickle.dumps(item))) for number, item in enumerate(wave)]
            with _without_pandas_warnings():
                frame = self.session.createDataFrame(
                    context.parallelize(packed, len(packed)), "number long, item binary"
                ).mapInArrow(run, "number long, done binary")
            for row in sorted(frame.collect(), key=lambda row: row["number"]):
                yield cloudpickle.loads(bytes(row["done"]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        """End the session."""
        self.session.stop()
