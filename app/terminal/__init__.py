"""`splice chat`: a conversation in the terminal, over the client package."""
