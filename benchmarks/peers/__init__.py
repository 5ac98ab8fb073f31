"""Other compilers of neural networks, asked about the same layers; they run in an environment of their own."""
