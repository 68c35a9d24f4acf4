"""Does it die well? Faults F1 to F20, with their targets, stand in `faults_table.py`."""
