"""The schema's history. `Database.migrate` runs it; see NOTES.md for how to add a step."""
