"""The model on a board: `mtool test`, or `pytest --mtool-board {{ test_board.name }}`. These tests are yours.

mtool's plugin has the fixtures: `model` is compiled and built, `device` runs it, `cost` is what an inference costs
there, `limits` is what limits.toml allows.
"""


def test_outputs_are_the_references(model, device):
    model.verify(device, samples=4)


def test_cost_is_within_limits(cost, limits):
    limits.check(cost)


def test_accuracy_is_within_limits(model, device, limits):
    limits.check_accuracy(model.accuracy(device, "labelled.npz"))
