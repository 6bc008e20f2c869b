"""Extended resources that a DeviceClass backs: which a pod needs, and the claim that is made for them."""
