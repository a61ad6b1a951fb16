"""Which calls of the frameworks copy where ``convert`` would alias: the command ``zerocopy audit``."""
