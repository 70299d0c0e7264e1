"""The longer commands, one file each, imported when they are called."""
