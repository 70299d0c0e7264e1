"""The doctor: a look through a log before training, which reports what is wrong with it and what to do about that."""

from spuir.logs.doctor.context_checks import id_like
from spuir.logs.doctor.diagnosis import Diagnosis, examine
from spuir.logs.doctor.findings import Finding

__all__ = ["Diagnosis", "Finding", "examine", "id_like"]
