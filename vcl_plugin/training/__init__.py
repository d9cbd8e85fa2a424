"""Training TransVCL: from a recipe file to weights that ship, with full, semi or weak labels.

recipe (every choice) → material, pairs, folders (what to learn from) → augment → assignment, losses
→ loop, pseudo (how) → validation, calibration (how well) → weights.
"""
