"""The only code that touches processes and the private files of a run."""
