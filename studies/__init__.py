"""Studies made with the pipeline: each folder has experiments, records of their results and a page made from them."""
