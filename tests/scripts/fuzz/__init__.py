"""Mutated inputs for every parser: damage.py damages, parsers.py reads, campaign.py counts."""
