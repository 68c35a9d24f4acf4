"""What users hold: presentations of a pool for Gymnasium and, in time, other ecosystems."""
