"""The providers of secret managers: one package each."""
