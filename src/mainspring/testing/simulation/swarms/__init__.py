"""What users of each service do, drawn."""
