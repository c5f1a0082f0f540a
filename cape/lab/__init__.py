"""The laboratory: synthetic studies, data sets, and engines tried on one computer."""
