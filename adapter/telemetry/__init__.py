"""What operators see: logs, metrics, health over HTTP."""
