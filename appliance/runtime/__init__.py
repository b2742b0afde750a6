"""What every process stands on: paths, configuration, logs, JSON-RPC, hooks, signals, systemd."""
