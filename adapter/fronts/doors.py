"""Opens and closes the ports of the fronts that are switched on."""
