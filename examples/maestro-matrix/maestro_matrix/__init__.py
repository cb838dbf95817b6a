"""Matrix for Maestro: nothing here is imported before an account is connected, but what can be set of one."""
