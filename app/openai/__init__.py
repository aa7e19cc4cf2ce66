"""OpenAI's own surfaces, as its unmodified clients call them."""
