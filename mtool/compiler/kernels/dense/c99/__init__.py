"""Dense layers in portable C."""
