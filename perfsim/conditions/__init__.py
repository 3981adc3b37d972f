"""What-ifs on conditions: slow GPUs, computation that varies, other traffic on the network."""
