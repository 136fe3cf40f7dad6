"""Models of what follows a decision, learned from a draw's own triples, and policies that act in them."""
