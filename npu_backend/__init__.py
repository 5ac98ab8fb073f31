"""NPU laboratory: compiler, simulator and device pipeline."""
