"""Reports: one format a file. They know timelines and predictions only."""
