"""The data of a site: list people, read, check, clean, project; no two subjects ever meet."""
