"""What is kept on disk or sent between processes: model files, atomic writes, shards."""
