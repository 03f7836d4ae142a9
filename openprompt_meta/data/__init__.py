"""Data sets for meta-learning: readers, splits by class, label words, checks, downloads and episodes.

dataset = load("demo")
episode = EpisodeSampler(dataset.train, ways=5, shots=5, queries=15, seed=0)[0]
"""
