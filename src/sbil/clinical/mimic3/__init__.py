"""MIMIC-III v1.4 to demonstrations: what was done for patients in intensive care, day by day."""
