"""A setting of the process is restored by the last block that needs it, in whatever thread that is."""

from threading import Event, Thread

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from spuir.base.process_settings import one_blas_thread


@pytest.mark.parametrize("last", ["this thread", "another"])
def test_the_last_block_of_any_thread_lifts_the_limit_of_blas(last: str) -> None:
    entered, leave, seen = Event(), Event(), list[set[int]]()

    def block() -> None:
        with one_blas_thread:
            entered.set()
            leave.wait(10)
            seen.append(blas_threads())

    other = Thread(target=block)
    with threadpool_limits(limits=2, user_api="blas"):
        if last == "another":
            with one_blas_thread:
                other.start()
                assert entered.wait(10) and blas_threads() == {1}
            leave.set()
            other.join()
        else:
            other.start()
            assert entered.wait(10)
            with one_blas_thread:
                leave.set()
                other.join()
                assert blas_threads() == {1}
        assert seen == [{1}] and blas_threads() == {2}
    one = threadpool_limits(limits=1, user_api="blas")
    assert blas_threads() == {1}  # this thread can set a limit of its own again
    one.restore_original_limits()


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}
