"""The prompt pool, its template and the verbalizers, each an ordinary OpenPrompt class."""
