"""What a worker may use, unless something else is said."""

MEMORY_GIB = 4.0
GENERATED_SECONDS, SAVED_SECONDS, REAL_SECONDS = 3.0, 20.0, 60.0
"""The time limit of one stage: of generated cases, of saved ones, of real models."""
