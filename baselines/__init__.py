"""Ground floor: what was measured, where it is kept, and how two measurements compare. Never imports torch."""
