"""The data of a site: state who is who, read, check, clean, project; no two subjects meet (`pipeline`)."""
