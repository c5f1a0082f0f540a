"""The data of a site: discover, read, check, clean, project; no two subjects meet (`pipeline`)."""
