"""What a release takes: archives built twice and tried on each Python, and what they depend on."""
