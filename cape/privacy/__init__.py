"""Audit unit 1: noise, sensitivities, ledger, accountant (numpy and standard library only)."""
