"""The foundation: records, parameters and their rules, registries, random streams, packing."""
