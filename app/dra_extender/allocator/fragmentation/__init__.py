"""What stays possible on nodes: how many pods of the expected kinds still fit, and what a placement costs them."""
