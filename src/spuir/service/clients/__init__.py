"""How programs call the service: clients in Python, and a load generator."""
