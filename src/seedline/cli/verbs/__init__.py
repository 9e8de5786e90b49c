"""What each verb does, one module for each, imported when the verb runs."""
