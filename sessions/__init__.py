"""The durable truth: sessions, turns, the token log and their branches."""
