"""Thinking without I/O: bytes into lines, lines into records, records into a verdict."""
