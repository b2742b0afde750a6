"""The one SQLite file: opening, migrations, checks, copies, SQL functions, row visibility, the registry of processes."""
