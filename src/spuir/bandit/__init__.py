"""The object that users work with: :class:`Bandit`, and how it is loaded from a file.

Its class is in ``contextual_bandit.py``: deciding and learning. What it inherits is in the other files: its arguments
(``bandit_arguments.py``), actions that come and go (``live_actions.py``), and what was learned, to read and to save
(``learned_model.py``).
"""

from spuir.bandit.contextual_bandit import Bandit, from_bytes, load

__all__ = ["Bandit", "from_bytes", "load"]
