"""Sweeps: one recipe at many settings, each trained for several seeds, and one table of what came out."""
