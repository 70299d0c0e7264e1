"""The one door for users' columns: contexts, labels, data frames, Arrow tables and the encoder."""
