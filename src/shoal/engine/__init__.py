"""The engine: cells in rows, workers, backends, and the pool. Imports without torch."""
