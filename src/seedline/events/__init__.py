"""What can happen in a session, and its exact bytes."""
