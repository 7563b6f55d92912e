"""The compile half: from a model file to a graph, a plan and C. It never imports the device half."""
