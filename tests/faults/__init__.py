"""Does it die well? Faults F1 to F19, with their targets, stand in `faults_table.py`."""
