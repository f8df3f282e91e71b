"""Several brokers as one cluster: how they reach each other, and what the controller decides."""
