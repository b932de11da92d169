"""What happens to the processes of a subject: killed, paused, two at once, without a checkpoint."""
