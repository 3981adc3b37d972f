"""A what-if page in the browser (`perfsim app`): controls, the answer, figures, A beside B."""
