"""Computations on tables of records: capecca, capemean, capepca."""
