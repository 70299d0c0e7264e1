"""Measurements of spuir against itself, the paper's own form and its peers.

``python -m benchmarks`` runs the parts that have floors (``requirements.py``): ``speed``, ``action_features``,
``scaling``, ``memory``, ``log_training``, ``dsjson``, ``quality`` and ``service``. Others are commands of their own,
behind numbers or choices that the documentation states: ``training`` (against peers, from files), ``evaluation``,
``joins``, ``log_readers``, ``recipe``, ``catalogue_variants``, ``tuning_level`` and ``bandwidth``.
"""

import os

# BLAS reads these when it is loaded, and importing this package comes before importing NumPy.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
