"""Private gradient methods on a network: gradient descent, gossip, gradient tracking."""
