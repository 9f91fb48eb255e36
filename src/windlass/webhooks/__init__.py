"""Webhooks: their endpoints, signatures and requests, and the side job that delivers them."""
