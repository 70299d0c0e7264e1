"""Pure functions on arrays: sums, imputation, solving, screening, ties. NumPy and SciPy only."""
