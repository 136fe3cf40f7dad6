"""The library below the commands: one function per command, each returns a typed result and prints nothing."""
