"""What earlier releases wrote, to be read by this one."""
