"""The page for trials: one document, one script, one style sheet."""
