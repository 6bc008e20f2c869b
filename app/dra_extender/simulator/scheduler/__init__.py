"""What kube-scheduler does around an extender: queue, filter, score, bind, permit of gangs."""
