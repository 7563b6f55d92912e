"""Operators that move elements: each draws its attributes and constants, and appends a node."""

import numpy as np

from tests.fuzzing.networks import Net


def transpose(net: Net) -> None:
    """Any permutation."""
    value = net.pick()
    net.one("Transpose", [value.name], perm=net.rng.sample(range(value.rank), value.rank))


def reshape(net: Net) -> None:
    """Reshape, Flatten, Squeeze or Unsqueeze."""
    rng, value = net.rng, net.pick()
    op = rng.choice(("Reshape", "Reshape", "Flatten", "Squeeze", "Unsqueeze"))
    if op == "Reshape":
        sizes, left = [], value.size
        while left > 1 and len(sizes) < 4:
            part = rng.choice([n for n in range(1, left + 1) if left % n == 0]) if len(sizes) < 3 else left
            sizes.append(part)
            left //= part
        sizes = [*sizes, left] if left != 1 or not sizes else sizes
        if value.size and rng.random() < 0.3:
            sizes[rng.randrange(len(sizes))] = -1
        net.one(op, [value.name, net.whole(sizes if value.size else value.shape)])
    elif op == "Flatten":
        net.one(op, [value.name], axis=rng.randint(0, value.rank))
    elif op == "Squeeze":
        ones = [axis for axis, size in enumerate(value.shape) if size == 1]
        net.one(op, [value.name, net.whole(rng.sample(ones, rng.randint(1, len(ones))))] if ones else [value.name])
    elif value.rank < 5:
        net.one(op, [value.name, net.whole([rng.randint(0, value.rank)])])


def concat(net: Net) -> None:
    """Concat of a value with constants, itself or a value of its shape."""
    rng, value = net.rng, net.pick()
    axis = net.axis(value)
    shape = list(value.shape)
    shape[axis] = rng.randint(0 if rng.random() < 0.05 else 1, 4)
    same = [v.name for v in net.values.values() if v.dtype == np.float32 and v.shape == value.shape]
    parts = [value.name, net.normal(shape), rng.choice(same)][: rng.randint(1, 3)]
    rng.shuffle(parts)
    net.one("Concat", parts, axis=axis)


def split(net: Net) -> None:
    """Split into two or three; all parts can be read."""
    rng, value = net.rng, net.pick()
    axis = net.axis(value)
    size = value.shape[axis]
    first = rng.randint(0 if rng.random() < 0.05 else 1, max(1, size - 1))
    net.add("Split", [value.name, net.whole([first, size - first])], 2, axis=axis)


def slice_(net: Net) -> None:
    """Slice with steps of either sign."""
    rng, value = net.rng, net.pick()
    axes = rng.sample(range(value.rank), rng.randint(1, max(1, value.rank)))
    starts, ends, steps = [], [], []
    for axis in axes:
        size = value.shape[axis]
        step = rng.choice((1, 1, 2, -1, -2, 3))
        low, high = sorted((rng.randint(0, size), rng.randint(0, size)))
        low, high = (low, high) if high - low >= 1 or rng.random() < 0.05 else (0, size)
        starts.append(low if step > 0 else high - 1)
        ends.append(high if step > 0 else low - 1 if low else -size - 1)
        steps.append(step)
    net.one("Slice", [value.name, *map(net.whole, (starts, ends, axes, steps))])


def pad(net: Net) -> None:
    """Pad with a constant, edge, reflection or wrap; negative pads crop."""
    rng, value = net.rng, net.pick()
    mode = rng.choice(("constant", "constant", "edge", "reflect"))
    pads = [rng.choice((0, 0, 1, 2)) for _ in range(2 * value.rank)]
    if mode == "constant" and rng.random() < 0.2 and value.rank:
        pads[rng.randrange(len(pads))] = -1
    if mode == "reflect":
        pads = [min(p, max(0, value.shape[n % value.rank] - 1)) for n, p in enumerate(pads)]
    fill = [net.constant(rng.choice((0.0, -1.5)), np.float32)] if mode == "constant" and rng.random() < 0.5 else []
    net.one("Pad", [value.name, net.whole(pads), *fill], mode=mode)


def resize(net: Net) -> None:
    """Resize, nearest or linear."""
    rng, value = net.rng, net.pick(rank=net.rng.choice((3, 4, 4)))
    mode = rng.choice(("nearest", "linear"))
    scales = [1.0, 1.0] + [rng.choice((0.5, 1.0, 1.5, 2.0, 3.0)) for _ in value.shape[2:]]
    attrs = {"mode": mode, "coordinate_transformation_mode": rng.choice(("half_pixel", "asymmetric"))}
    if mode == "nearest":
        attrs["nearest_mode"] = rng.choice(("floor", "ceil", "round_prefer_floor"))
    net.one("Resize", [value.name, "", net.constant(scales, np.float32)], **attrs)


def gather(net: Net) -> None:
    """Gather, GatherElements, GatherND or ScatterElements by constants."""
    rng, value = net.rng, net.pick()
    axis, draw = net.axis(value), net.numbers()
    size = value.shape[axis]
    op = rng.choice(("Gather", "Gather", "GatherElements", "ScatterElements", "GatherND"))
    if op == "Gather":
        shape = rng.choice(((), (2,), (3, 2), (1,), (0,) if rng.random() < 0.1 else (3,)))
        net.one(op, [value.name, net.constant(draw.integers(-size, size, shape), np.int64)], axis=axis)
    elif op == "GatherND":
        index = [draw.integers(0, n, 3) for n in value.shape[: rng.randint(1, value.rank)]]
        net.one(op, [value.name, net.constant(np.stack(index, -1), np.int64)])
    else:
        shape = list(value.shape)
        shape[axis] = rng.randint(1, size)
        index = np.argsort(draw.random(value.shape), axis)  # each place at most once
        places = net.constant(np.take(index, range(shape[axis]), axis), np.int64)
        more = [net.normal(shape)] if op == "ScatterElements" else []
        net.one(op, [value.name, places, *more], axis=axis)


def spread(net: Net) -> None:
    """Expand, Tile, or blocks to and from depth."""
    rng, value = net.rng, net.pick()
    op = rng.choice(("Expand", "Tile", "DepthToSpace", "SpaceToDepth"))
    if op == "Expand":
        target = [rng.choice((2, 3)) if size == 1 else size for size in value.shape]
        net.one(op, [value.name, net.whole([*([2] if rng.random() < 0.3 and value.rank < 5 else []), *target])])
    elif op == "Tile":
        net.one(op, [value.name, net.whole([rng.choice((1, 1, 2, 3)) for _ in value.shape])])
    elif op == "DepthToSpace" and value.rank == 4 and value.shape[1] % 4:
        return  # onnxruntime makes nothing of it, where ONNX has no such operator
    else:
        attrs = {"mode": rng.choice(("DCR", "CRD"))} if op == "DepthToSpace" else {}
        net.one(op, [value.name], blocksize=2, **attrs)


def order(net: Net) -> None:
    """CumSum, TopK, ArgMax, Trilu, Einsum."""
    rng, value = net.rng, net.pick()
    op = rng.choice(("CumSum", "TopK", "ArgMax", "Trilu", "Einsum"))
    if op == "CumSum":
        axis = net.constant(net.axis(value), np.int64)
        net.one(op, [value.name, axis], exclusive=rng.randint(0, 1), reverse=rng.randint(0, 1))
    elif op == "TopK":
        axis = net.axis(value)
        count = net.whole([rng.randint(1, max(1, value.shape[axis]))])
        net.add(op, [value.name, count], 2, axis=axis, largest=rng.randint(0, 1))
    elif op == "ArgMax":
        found = net.one(
            rng.choice(("ArgMax", "ArgMin")), [value.name], axis=net.axis(value), keepdims=rng.randint(0, 1)
        )
        net.one("Cast", [found.name], to=1)
    elif op == "Trilu":
        net.one(op, [value.name, net.constant(rng.randint(-1, 1), np.int64)], upper=rng.randint(0, 1))
    else:
        value = net.pick(rank=rng.choice((2, 3)))
        letters = "ijk"[: value.rank]
        text = rng.choice((f"{letters},{letters[-1]}m->{letters[:-1]}m", f"{letters}->{letters[::-1]}", f"{letters}->"))
        more = [net.normal((value.shape[-1], 4))] if "," in text else []
        net.one(op, [value.name, *more], equation=text)
