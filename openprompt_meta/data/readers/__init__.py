"""Readers: each turns one kind of source into :class:`Records`, labelled texts with the splits they were found in."""
