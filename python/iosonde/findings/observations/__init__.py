"""What is stated about every result set in which it occurs, without a question of the study."""
