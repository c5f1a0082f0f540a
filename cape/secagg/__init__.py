"""Audit unit 2: fixed point, keys, masks; sees integers and bytes, nothing else."""
