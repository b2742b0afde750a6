"""What `owlbox doctor` looks at, by subject."""
