"""What each model id holds, kept on the volume across processes: implements `ports.Journal`."""
