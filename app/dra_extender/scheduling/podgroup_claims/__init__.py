"""The optional controller that creates the claims of PodGroups where kube-controller-manager does not."""
