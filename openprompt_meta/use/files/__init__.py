"""Files of texts: labelled ones to learn from, rows to be classified, rows that were."""
