"""Looking after baselines: self-audits of the gate, drift of a branch, checks of publications and their retention."""
