"""What would happen: changes applied to a copy of a cluster's objects, and where the pods that wait would land then."""
