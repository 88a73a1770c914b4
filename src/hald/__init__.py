"""Dataset distillation end to end: squeeze, synthesis, relabel, evaluate, tables."""
