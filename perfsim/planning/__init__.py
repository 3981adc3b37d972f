"""Questions that take many predictions: what is around one, what is best, what to change."""
