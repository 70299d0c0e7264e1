"""One profile for every property test, the same examples in every run; and one time at which models are saved."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "fixed", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fixed")

# Two models saved one after the other are the same, bit for bit, but for the time of saving.
os.environ.setdefault("SOURCE_DATE_EPOCH", "1767225600")
