"""The references that a model is compared with: onnxruntime and LiteRT. Their native code runs in another process.

`process.call` runs a function of `process.FUNCTIONS` there. Nothing here imports the compile half, so that the process
starts fast.
"""
