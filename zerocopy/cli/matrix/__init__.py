"""``zerocopy matrix``: convert real data between all frameworks and check each promise."""
