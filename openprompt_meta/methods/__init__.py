"""What the paper names, each put together from template, verbalizer, learner and what is tuned."""
