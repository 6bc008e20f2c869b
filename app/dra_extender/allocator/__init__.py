"""The allocator: which devices serve the claims of a pod on a node, or why none do.

    demand.build     claims and classes -> Demand, valid on every node (or a Rejection)
    pools            slices -> NodePools: what a node can use
    allocate         Demand, NodePools and usage -> Placement or NoFit
    explain          the same input -> a full account of every request's devices, for people

Pure: no clock, no I/O, no randomness.  Decisions are those of upstream's structured allocator (Kubernetes 1.37): the first
solution in the same order, unless `ReleaseBehaviour` or the caller's order of devices says otherwise.
"""
