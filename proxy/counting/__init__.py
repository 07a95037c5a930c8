"""How many tokens a request has: exact where the provider has spoken, estimated where it has not."""
