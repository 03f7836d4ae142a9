"""What tests of several modules share."""
