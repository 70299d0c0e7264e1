"""The floating-point settings of the library's arithmetic."""

import numpy as np

quietly = np.errstate(divide="warn", under="ignore", over="ignore", invalid="ignore")
"""Decorator: overflow and invalid values raise no warning. What is not finite is refused later, by value and row."""
