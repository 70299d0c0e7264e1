"""Users' data: contexts, labels, data frames, Arrow tables and the encoder. No other room reads it."""
