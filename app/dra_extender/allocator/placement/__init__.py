"""From a solution to the allocation that is written: results, configuration, node selector."""
