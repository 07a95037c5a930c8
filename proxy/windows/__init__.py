"""How large a model's window is, and what else is known of a model by its name."""
