"""sbil."""
