"""The masked language model: loading it, wrapping texts for it, reading features out of it."""
