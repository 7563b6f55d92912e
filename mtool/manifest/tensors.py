"""The tensors that a model takes, gives, and keeps from call to call."""

from mtool.manifest.fields import BYTE_WIDE, FormulaText, OfModel, Strict


class SizeRange(Strict):
    """What a run-time size may be. `dimension` is its name in the model, `symbol` that in formulas."""

    dimension: OfModel
    symbol: str
    least: int
    most: int


class RowStream(Strict):
    """An input that is given by rows, as they arrive (`--interface-api feed`).

    There are `rows` of them, of `row_bytes` each. They are those of the model's tensor transposed by `order`, if that
    is not empty. `until` is the last operator that is computed as they arrive.
    """

    rows: int
    row_bytes: int
    order: tuple[int, ...] = ()
    until: str


class Tensor(Strict):
    """One input or output of the model, in the model's own order.

    `shape` is in elements, row-major, batch included. `arena_offset` is its place in the arena in
    bytes, or None where the caller keeps it (`--io external`); of an arena in several pools from the start of that of
    number `pool`. `scale`, `zero_point` and `axis`
    are those of the quantisation, if it has one (value = (q - zero_point) * scale). Where the size
    depends on data, `count` is the name of the output that says how many elements along dimension
    `count_axis` are there; what is behind them means nothing. Where the shape follows run-time sizes, `shape` is the
    largest, and `dims` has a formula of the sizes for each dimension (mtool.base.formulas): the elements lie side by
    side as in a tensor of that shape. An input that is such a size itself has its `range`: the name of the dimension in
    the model, the least and the most that it may be; formulas call it by its `symbol`. An input that is given by rows
    has its `stream`, and no place.
    """

    name: OfModel
    c_name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    arena_offset: int | None
    pool: int = 0
    scale: tuple[float, ...] | None = None
    zero_point: tuple[int, ...] | None = None
    axis: int | None = None
    count: OfModel | None = None
    count_axis: int | None = None
    dims: tuple[FormulaText, ...] | None = None
    range: SizeRange | None = None
    stream: RowStream | None = None

    @property
    def stored(self) -> str:
        """The type that an element is stored as: an integer of 2 or 4 bits takes a byte."""
        return BYTE_WIDE.get(self.dtype, self.dtype)

    @property
    def outside_bytes(self) -> int:
        """The bytes of it that a program has outside of the arena: one row of what is given by rows."""
        if self.stream is not None:
            return self.stream.row_bytes
        return self.bytes if self.arena_offset is None else 0


class StateTensor(Strict):
    """A state: an output of the model that feeds an input of its next call, in the arena for the firmware's life.

    `output` and `input` are their names in the model. `dtype` and `shape` are those in memory, where a state may lie
    transposed, or quantised where the model has it as float. `pool` and `arena_offset` are as a Tensor's. `initial`
    is base64 of the bytes that it begins with; "": zeros.
    """

    output: OfModel
    input: OfModel
    c_name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    arena_offset: int
    pool: int = 0
    initial: str = ""
    scale: tuple[float, ...] | None = None
    zero_point: tuple[int, ...] | None = None
