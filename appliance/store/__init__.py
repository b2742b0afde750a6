"""The one SQLite file: opening, migrations, SQL functions, row visibility, the registry of processes."""
