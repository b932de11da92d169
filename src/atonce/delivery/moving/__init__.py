"""Moving a pipeline: to other positions, in from another engine's connector, and about beside one that runs."""
