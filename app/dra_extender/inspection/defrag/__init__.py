"""The fewest pods to move so that a device is free, a pod or claim fits, or a node is empty, each plan played by `what-if`."""
