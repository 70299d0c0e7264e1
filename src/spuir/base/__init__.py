"""What everything else stands on: records, parameters and their rules, registries, random streams, packing."""
