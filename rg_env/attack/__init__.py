"""`rg-env attack`: attacks on scorers that users bring, as a policy in training might try them."""
