"""What a run leaves behind: its history, and figures in one style."""
