"""The front end: REST, websocket, OpenAI surfaces, settings and the command line."""
