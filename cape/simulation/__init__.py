"""A whole consortium on this computer, through the code of a real run."""
