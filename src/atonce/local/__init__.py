"""What this machine runs for us: children that die with their parent, free ports, Java, PostgreSQL."""
