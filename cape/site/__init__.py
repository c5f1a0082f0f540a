"""What a site keeps: data, journal, vault, ledger of all runs, policy, identity."""
