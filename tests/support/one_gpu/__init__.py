"""What is measured on one real GPU, beside what perfsim says of it."""
