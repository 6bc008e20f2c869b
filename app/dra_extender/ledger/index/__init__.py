"""One index per kind of object: claims, pods, PodGroups, slices, guard claims, orphaned devices."""
