"""What each front offers, as an OpenAPI document."""
