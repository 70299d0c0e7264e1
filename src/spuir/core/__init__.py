"""Pure functions on arrays: sums, imputation, solving, scoring. NumPy and SciPy only."""
