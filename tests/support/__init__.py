"""What tests share: small models, clusters and files, and how tests look at answers."""
