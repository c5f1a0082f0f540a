"""Public feature spaces and their bases: voxels, parcels, grayordinates, columns."""
