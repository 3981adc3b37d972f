"""Files: where data lies (the catalog), and how tables, TOML and journals are read and written."""
