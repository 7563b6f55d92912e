"""Templates in portable C."""
