"""Where blocks go when the device has no room for them, and come back from, verified."""
