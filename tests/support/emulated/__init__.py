"""A cluster that is not there: emulated hosts, and the training that runs on them."""
