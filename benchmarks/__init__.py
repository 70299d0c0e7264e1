"""Measurements of spuir against itself, the paper's own form and its peers: ``python -m benchmarks``."""

import os

# BLAS reads these when it is loaded, and importing this package comes before importing NumPy.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
