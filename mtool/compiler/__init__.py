"""The compile half: a model file becomes a graph, a plan and C. It never imports the device half."""
