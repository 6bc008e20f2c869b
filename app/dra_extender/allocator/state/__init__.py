"""Values that the allocator is given and returns: usage, features, release rules, results and rejections."""
