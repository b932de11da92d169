"""What operators ask of a cluster: topics, groups, hanging transactions, durability."""
