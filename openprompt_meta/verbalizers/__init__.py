"""Verbalizers, each an ordinary OpenPrompt class that can also move from task to task."""
