"""The words of the project: frozen values that every layer speaks, and nothing that acts."""
