"""Using what was learned: `MetaPromptClassifier`, its folder on disk, files of texts."""
