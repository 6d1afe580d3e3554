"""Clusters that go on after the command that started them, found again by their name."""
