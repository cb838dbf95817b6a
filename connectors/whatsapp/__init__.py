"""WhatsApp: nothing here is imported before a number is connected, but what can be set of one."""
