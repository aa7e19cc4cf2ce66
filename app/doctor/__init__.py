"""`splice doctor`: what stands in a server's way, and what to do about it. Changes nothing."""
