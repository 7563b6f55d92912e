"""Small valid ONNX models of every operator family, the start of mutations."""

import pickle
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

KINDS = {
    "f": np.float32, "h": np.float16, "d": np.float64, "i8": np.int8, "u8": np.uint8, "i16": np.int16,
    "i32": np.int32, "i64": np.int64, "b": np.bool_,
}  # fmt: skip

# name | opset | inputs | constants | nodes in onnx's text form. A constant without "=" is drawn.
TABLE = """
conv          | 17 | x:f 1,3,8,8   | w:f 4,3,3,3; b:f 4 | y = Conv <pads=[1,1,1,1],strides=[2,2]> (x, w, b)
conv_group    | 17 | x:f 2,4,7,5   | w:f 8,2,3,3 | c = Conv <group=2,dilations=[2,1],pads=[2,0,1,1]> (x, w) y = Relu(c)
depthwise     | 14 | x:f 1,6,9,9   | w:f 6,1,3,3; b:f 6 | c = Conv <group=6,auto_pad="SAME_UPPER"> (x, w, b) y = HardSwish(c)
conv1d        | 17 | x:f 1,3,12    | w:f 5,3,4 | y = Conv <strides=[2]> (x, w)
conv3d        | 17 | x:f 1,2,4,4,4 | w:f 3,2,2,2,2 | y = Conv (x, w)
transposed    | 17 | x:f 1,4,5,5   | w:f 4,3,3,3 | y = ConvTranspose <strides=[2,2],pads=[1,1,1,1],output_padding=[1,1]> (x, w)
deform        | 19 | x:f 1,1,3,3; o:f 1,8,2,2 | w:f 1,1,2,2 | y = DeformConv <kernel_shape=[2,2]> (x, w, o)
pool          | 17 | x:f 1,3,9,9   | | a = MaxPool <kernel_shape=[3,3],strides=[2,2],ceil_mode=1> (x) y = AveragePool <kernel_shape=[2,2],pads=[1,0,0,1],count_include_pad=1> (a)
pool_indices  | 17 | x:f 1,2,6,6   | | p, i = MaxPool <kernel_shape=[2,2],strides=[2,2]> (x) y = MaxUnpool <kernel_shape=[2,2],strides=[2,2]> (p, i)
global        | 17 | x:f 2,3,4,5   | | a = GlobalAveragePool(x) m = GlobalMaxPool(x) y = Add(a, m) l = LpPool <kernel_shape=[2,2],p=2> (x)
resize        | 18 | x:f 1,2,4,5   | e:f =; s:f =1,1,2,1.5 | y = Resize <mode="linear",coordinate_transformation_mode="half_pixel"> (x, e, s)
resize_sizes  | 18 | x:f 1,2,4,4   | e:f =; n:i64 =1,2,7,3 | y = Resize <mode="nearest",nearest_mode="floor",coordinate_transformation_mode="asymmetric"> (x, e, e, n)
cubic         | 19 | x:f 1,1,5,5   | e:f =; s:f =1,1,0.6,1.7 | y = Resize <mode="cubic",antialias=1> (x, e, s)
grid          | 20 | x:f 1,2,4,4; g:f 1,3,3,2 | | y = GridSample <mode="linear",padding_mode="border"> (x, g)
roi           | 16 | x:f 1,2,6,6; r:f 2,4 | i:i64 =0,0 | y = RoiAlign <output_height=2,output_width=2,sampling_ratio=2> (x, r, i)
gemm          | 13 | x:f 3,6       | w:f 5,6; b:f 5 | y = Gemm <transB=1,alpha=0.5,beta=2.0> (x, w, b)
matmul        | 13 | x:f 2,3,4; z:f 4,5 | w:f 4,5 | a = MatMul(x, w) b = MatMul(x, z) y = Add(a, b)
einsum        | 17 | x:f 2,3,4; z:f 2,4,5 | | y = Einsum <equation="bij,bjk->bik"> (x, z)
softmax       | 13 | x:f 3,3,3     | | a = Softmax <axis=1> (x) b = LogSoftmax <axis=0> (x) y = Sub(a, b)
softmax11     | 11 | x:f 3,4,2     | | a = Softmax <axis=1> (x) y = Hardmax <axis=2> (a)
norms         | 17 | x:f 2,4,5,5   | s:f 4; b:f 4; m:f 4; v:f 4 | a = BatchNormalization(x, s, b, m, v) c = InstanceNormalization(a, s, b) y = LRN <size=3> (c)
layernorm     | 17 | x:f 2,4,6     | s:f 6; b:f 6 | y = LayerNormalization <axis=-1> (x, s, b)
groupnorm     | 21 | x:f 1,4,3,3   | s:f 4; b:f 4 | y = GroupNormalization <num_groups=2> (x, s, b)
lp            | 17 | x:f 3,4       | | a = LpNormalization <axis=1,p=2> (x) y = MeanVarianceNormalization <axes=[0]> (a)
binary        | 14 | x:f 2,3,4; z:f 3,1 | c:f 4 | a = Add(x, z) b = Mul(a, c) d = Sub(b, x) e = Div(d, c) y = Max(e, z, x)
powers        | 15 | x:f 2,5       | t:f =2 | a = Abs(x) b = Sqrt(a) c = Pow(b, t) d = Exp(x) e = Log(a) y = Sum(c, d, e)
unary         | 20 | x:f 3,7       | | a = Sigmoid(x) b = Tanh(a) c = Erf(b) d = Gelu(c) e = Mish(d) f = Softplus(e) y = Softsign(f)
unary2        | 17 | x:f 7         | | a = Elu(x) b = Selu(a) c = Celu(b) d = LeakyRelu(c) e = HardSigmoid(d) f = ThresholdedRelu(e) y = Shrink(f)
trigonometry  | 17 | x:f 4         | | a = Sin(x) b = Cos(x) c = Atan(a) d = Asinh(b) y = Mul(c, d)
rounding      | 17 | x:f 9         | | a = Floor(x) b = Ceil(x) c = Round(x) d = Sign(x) e = Neg(a) f = Reciprocal(x) y = Max(a, b, c, d, e, f)
clip          | 13 | x:f 2,4       | lo:f =-0.5; hi:f =0.7 | a = Clip(x, lo, hi) s = Clip(a, , hi) y = PRelu(s, lo)
logic         | 16 | x:f 2,4; z:f 2,4 | | a = Less(x, z) b = GreaterOrEqual(x, z) c = Not(a) d = And(b, c) e = Xor(a, d) y = Where(e, x, z)
integers      | 18 | x:i32 2,4; z:i32 4 | k:i32 =3 | a = Add(x, z) b = Mul(a, k) c = Mod(b, k) d = BitwiseAnd(c, z) y = Div(d, k)
shifts        | 18 | x:u8 5; z:u8 5 | | a = BitShift <direction="LEFT"> (x, z) b = BitwiseNot(a) y = BitwiseXor(b, x)
casts         | 19 | x:f 6         | | a = Cast <to=3> (x) b = Cast <to=10> (x) c = Cast <to=9> (x) d = Cast <to=1> (a) e = Cast <to=1> (b) g = Cast <to=1> (c) y = Sum(d, e, g)
reduce        | 18 | x:f 2,3,4     | ax:i64 1=1 | a = ReduceSum(x, ax) b = ReduceMean(x, ax) c = ReduceMax(x, ax) d = ReduceL2(x, ax) e = ReduceLogSumExp(x, ax) y = Sum(a, b, c, d, e)
reduce13      | 13 | x:f 2,3,4     | ax:i64 =0,2 | a = ReduceProd <axes=[0,2],keepdims=0> (x) b = ReduceSum <keepdims=0> (x, ax) y = Add(a, b)
arg           | 13 | x:f 3,5       | k:i64 1=2 | a = ArgMax <axis=1> (x) b = ArgMin <axis=0,keepdims=0> (x) v, i = TopK(x, k)
cumulate      | 14 | x:f 3,5       | ax:i64 =1 | y = CumSum <reverse=1,exclusive=1> (x, ax)
move          | 17 | x:f 2,3,4     | s:i64 =4,-1; p:i64 =1,0,0,2 | a = Transpose <perm=[2,0,1]> (x) b = Reshape(a, s) c = Flatten <axis=1> (b) y = Pad(c, p)
squeeze       | 13 | x:f 1,3,1,2   | ax:i64 =0,2; ay:i64 1=1 | a = Squeeze(x, ax) b = Unsqueeze(a, ay) y = Identity(b)
slice         | 13 | x:f 4,6,5     | st:i64 =1,-1; en:i64 =4,-6; ax:i64 =0,1; sp:i64 =1,-2 | y = Slice(x, st, en, ax, sp)
slice9        | 9  | x:f 4,6       | | y = Slice <starts=[1,0],ends=[3,9223372036854775807]> (x)
concat_split  | 13 | x:f 2,6; z:f 2,3 | n:i64 =4,5 | c = Concat <axis=1> (x, z) a, b = Split <axis=1> (c, n) y = Concat <axis=-1> (b, a)
gather        | 13 | x:f 4,5; i:i64 2,2 | k:i64 =0,-1,2 | a = Gather <axis=0> (x, k) b = Gather <axis=1> (x, i) y = GatherElements <axis=0> (x, i)
gathernd      | 13 | x:f 3,4,2     | k:i64 2,1,2=0,1,2,3 | y = GatherND(x, k)
scatter       | 18 | x:f 4,5; u:f 2,5 | k:i64 2,5=0,1,2,3,0,1,2,3,1,1; n:i64 2,1=1,3 | a = ScatterElements <axis=0,reduction="add"> (x, k, u) y = ScatterND(a, n, u)
expand        | 13 | x:f 3,1       | s:i64 =2,3,4; r:i64 =1,2,1 | a = Expand(x, s) y = Tile(a, r)
shapes        | 17 | x:f 2,3,4     | z:i64 =0 | s = Shape(x) n = Gather(s, z) a = ConstantOfShape(s) y = Add(x, a) m = Size(x)
creation      | 14 | x:f 4,4       | lo:f =0; hi:f =8; st:f =2; k:i64 =1 | r = Range(lo, hi, st) e = EyeLike <k=1> (x) a = Add(r, e) y = Trilu <upper=0> (a, k)
onehot        | 13 | i:i64 2,3     | d:i64 =4; v:f =0,1 | y = OneHot <axis=1> (i, d, v)
blocks        | 13 | x:f 1,8,2,3   | | a = DepthToSpace <blocksize=2,mode="CRD"> (x) y = SpaceToDepth <blocksize=2> (a)
reverse       | 13 | x:f 4,3       | n:i64 =1,4,2 | y = ReverseSequence <time_axis=0,batch_axis=1> (x, n)
nonzero       | 13 | x:f 2,3       | | y = NonZero(x)
unique        | 13 | x:f 6         | | y, i, v, n = Unique <sorted=1> (x)
compress      | 13 | x:f 3,4       | c:b =1,0,1 | y = Compress <axis=0> (x, c)
nms           | 11 | x:f 1,4,4; s:f 1,1,4 | n:i64 =2; t:f =0.5 | y = NonMaxSuppression(x, s, n, t)
lstm          | 14 | x:f 4,1,3     | w:f 1,8,3; r:f 1,8,2; b:f 1,16 | y, h, c = LSTM <hidden_size=2> (x, w, r, b)
gru           | 14 | x:f 4,2,3; h0:f 2,2,2 | w:f 2,6,3; r:f 2,6,2 | y, h = GRU <hidden_size=2,direction="bidirectional",linear_before_reset=1> (x, w, r, , , h0)
rnn           | 14 | x:f 3,1,2     | w:f 1,4,2; r:f 1,4,4 | y, h = RNN <hidden_size=4> (x, w, r)
dft           | 20 | x:f 1,8,1     | n:i64 =8; ax:i64 =1 | y = DFT <onesided=1> (x, n, ax)
stft          | 17 | x:f 1,16,1    | st:i64 =4; w:f 8 | y = STFT(x, st, w)
windows       | 17 | x:f 8         | n:i64 =8 | w = HannWindow(n) y = Mul(x, w)
qdq_conv      | 13 | x:i8 1,2,6,6  | s:f =0.05; z:i8 =3; w:i8 4,2,3,3; ws:f 4=0.01,0.02,0.015,0.03; wz:i8 4=0,0,0,0; bi:i32 4=9,-9,100,0; bs:f 4=0.0005,0.001,0.00075,0.0015; bz:i32 4=0,0,0,0; o:f =0.1; oz:i8 =-7 | a = DequantizeLinear(x, s, z) k = DequantizeLinear <axis=0> (w, ws, wz) b = DequantizeLinear <axis=0> (bi, bs, bz) c = Conv <pads=[1,1,0,0]> (a, k, b) r = Relu(c) y = QuantizeLinear(r, o, oz)
qdq_dense     | 13 | x:f 2,8       | s:f =0.05; z:u8 =120; w:i8 8,5; ws:f =0.02; wz:i8 =0; o:f =0.1 | q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) k = DequantizeLinear(w, ws, wz) m = MatMul(a, k) r = QuantizeLinear(m, o, z) y = DequantizeLinear(r, o, z)
qdq_add       | 13 | x:i8 2,3,4; v:i8 3,4 | s:f =0.05; z:i8 =3; t:f =0.031; p:i8 =-9; o:f =0.06 | a = DequantizeLinear(x, s, z) b = DequantizeLinear(v, t, p) c = Add(a, b) d = Sigmoid(c) y = QuantizeLinear(d, o, z)
qdq_blocked   | 21 | x:f 2,8       | w:i8 8,4; ws:f 2,4 | k = DequantizeLinear <axis=0,block_size=4> (w, ws) y = MatMul(x, k)
qlinearconv   | 10 | x:u8 1,2,5,5  | s:f =0.05; z:u8 =128; w:i8 3,2,3,3; ws:f 3=0.01,0.02,0.03; wz:i8 3=0,0,0; o:f =0.1; oz:u8 =100; b:i32 3=1,2,3 | y = QLinearConv(x, s, z, w, ws, wz, o, oz, b)
qlinearmatmul | 10 | x:u8 3,4; v:u8 4,5 | s:f =0.05; z:u8 =128; o:f =0.1 | y = QLinearMatMul(x, s, z, v, s, z, o, z)
integer       | 10 | x:u8 3,4; v:u8 4,5; g:u8 1,1,5,5 | z:u8 =128; w:u8 2,1,3,3 | y = MatMulInteger(x, v, z, z) c = ConvInteger <pads=[1,1,1,1]> (g, w, z, z)
dynamic       | 11 | x:f 3,4       | w:i8 4,5; ws:f =0.02 | q, s, z = DynamicQuantizeLinear(x) m = MatMulInteger(q, w, z) f = Cast <to=1> (m) g = Mul(s, ws) y = Mul(f, g)
attention     | 17 | q:f 1,4,8     | w:f 8,24; h:f =0.35; n:i64 =8,8,8 | p = MatMul(q, w) a, k, v = Split <axis=-1> (p, n) t = Transpose <perm=[0,2,1]> (k) s = MatMul(a, t) d = Mul(s, h) m = Softmax(d) y = MatMul(m, v)
attention24   | 24 | q:f 1,2,3,4; k:f 1,2,5,4; v:f 1,2,5,4 | | y = Attention(q, k, v)
rotary        | 24 | x:f 1,2,3,4   | c:f 1,3,2; s:f 1,3,2 | y = RotaryEmbedding(x, c, s)
rms           | 24 | x:f 2,6       | s:f 6 | y = RMSNormalization(x, s)
microsoft     | 17 | x:f 1,4,8     | s:f 8; b:f 8 | a = com.microsoft.Gelu(x) c = com.microsoft.BiasGelu(a, b) y = com.microsoft.SkipLayerNormalization(c, x, s, b)
contrib_q     | 17 | x:u8 1,4; v:u8 1,4 | s:f =0.05; z:u8 =128 | a = com.microsoft.QLinearAdd(x, s, z, v, s, z, s, z) b = com.microsoft.QLinearMul(a, s, z, v, s, z, s, z) y = com.microsoft.QLinearSigmoid(b, s, z, s, z)
contrib_mha   | 17 | q:f 1,3,8; k:f 1,3,8; v:f 1,3,8 | | y = com.microsoft.MultiHeadAttention <num_heads=2> (q, k, v)
classical     | 17 | x:f 2,4       | | a = ai.onnx.ml.Scaler <offset=[0.1],scale=[2.0]> (x) b = ai.onnx.ml.Normalizer <norm="L2"> (a) y = ai.onnx.ml.LinearRegressor <coefficients=[1.0,2.0,3.0,4.0],intercepts=[0.5]> (b)
trees         | 17 | x:f 3,2       | | y = ai.onnx.ml.TreeEnsembleRegressor <n_targets=1,nodes_treeids=[0,0,0],nodes_nodeids=[0,1,2],nodes_featureids=[1,0,0],nodes_values=[0.5,0.0,0.0],nodes_modes=["BRANCH_LEQ","LEAF","LEAF"],nodes_truenodeids=[1,0,0],nodes_falsenodeids=[2,0,0],nodes_hitrates=[1.0,1.0,1.0],nodes_missing_value_tracks_true=[0,0,0],target_treeids=[0,0],target_nodeids=[1,2],target_ids=[0,0],target_weights=[1.5,-2.0]> (x)
svm           | 17 | x:f 2,3       | | y = ai.onnx.ml.SVMRegressor <kernel_type="RBF",kernel_params=[0.5,0.0,3.0],n_supports=2,support_vectors=[1.0,0.0,1.0,0.5,0.5,0.5],coefficients=[1.0,-1.0],rho=[0.2]> (x)
tfidf         | 9  | x:i64 6       | | y = TfIdfVectorizer <min_gram_length=1,max_gram_length=2,max_skip_count=1,mode="TF",ngram_counts=[0,2],ngram_indexes=[0,1,2],pool_int64s=[2,3,5,4]> (x)
sequence      | 17 | x:f 2,3; z:f 2,3 | k:i64 =1 | s = SequenceConstruct(x, z) a = SequenceAt(s, k) b = ConcatFromSequence <axis=0> (s) y = Mul(a, a)
branch        | 17 | x:f 2,3; c:b | k:f =2 | t = Mul(x, k) y = If (c) <then_branch = g () => (float[2,3] a) { a = Add(t, x) }, else_branch = h () => (float[2,3] b) { b = Sub(t, x) }>
loop          | 17 | x:f 2,3       | n:i64 =3; go:b =1 | y, s = Loop (n, go, x) <body = g (int64 i, bool c, float[2,3] v) => (bool d, float[2,3] w, float[2,3] u) { d = Identity(c) w = Add(v, x) u = Mul(w, v) }>
scan          | 17 | x:f 4,3; h:f 3 | | y, s = Scan <num_scan_inputs=1, body = g (float[3] v, float[3] e) => (float[3] w, float[3] u) { w = Add(v, e) u = Relu(w) }> (h, x)
cnn           | 17 | x:f 1,1,8,8   | w:f 4,1,3,3; b:f 4; v:f 8,4,3,3; s:i64 =1,-1; d:f 32,10 | c = Conv <pads=[1,1,1,1]> (x, w, b) r = Relu(c) p = MaxPool <kernel_shape=[2,2],strides=[2,2]> (r) e = Conv <pads=[1,1,1,1]> (p, v) f = Relu(e) q = AveragePool <kernel_shape=[2,2],strides=[2,2]> (f) g = Reshape(q, s) m = MatMul(g, d) y = Softmax(m)
residual      | 17 | x:f 1,4,6,6   | w:f 4,4,3,3; v:f 4,1,3,3 | a = Conv <pads=[1,1,1,1]> (x, w) b = Clip(a) c = Conv <pads=[1,1,1,1],group=4> (b, v) d = Add(c, x) y = Relu(d) z = GlobalAveragePool(d)
"""  # noqa: E501

FUNCTION = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
g (float[2,3] x) => (float[2,3] y) { a = own.twice(x) y = own.scaled <k=3.0> (a) }
<domain: "own", opset_import: ["" : 17]> twice (p) => (q) { r = Add(p, p) q = Relu(r) }
<domain: "own", opset_import: ["" : 17, "own" : 1]>
scaled <k> (p) => (q) { c = Constant <value_float: float = @k> () s = Mul(p, c) q = own.twice(s) }
"""


def own() -> dict[str, onnx.ModelProto]:
    """Return the models that are written here."""
    rng = np.random.default_rng(11)
    found = {"functions": onnx.parser.parse_model(FUNCTION)}
    for line in TABLE.strip().splitlines():
        name, opset, inputs, constants, nodes = (part.strip() for part in re.split(r"\s\|", line, maxsplit=4))
        found[name] = _model(int(opset), inputs, constants, nodes, rng)
    return found


def _model(opset: int, inputs: str, constants: str, nodes: str, rng: np.random.Generator) -> onnx.ModelProto:
    graph = onnx.parser.parse_graph(f"g () => () {{ {nodes} }}")
    for spec in filter(None, (part.strip() for part in inputs.split(";"))):
        label, kind, shape, _ = _spec(spec)
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        graph.input.append(helper.make_tensor_value_info(label, elem, shape))
    for spec in filter(None, (part.strip() for part in constants.split(";"))):
        label, kind, shape, values = _spec(spec)
        if values is None:
            data = rng.integers(-9, 9, shape) if np.dtype(kind).kind in "iu" else rng.normal(0, 0.5, shape)
            data = abs(data) if kind is np.uint8 or label in ("v", "s") else data
        else:
            numbers = [float(value) if "." in value else int(value) for value in values]
            data = np.array(numbers).reshape(shape or (() if len(numbers) == 1 else (len(numbers),)))
        graph.initializer.append(numpy_helper.from_array(np.asarray(data, kind), label))
    read = {value for node in graph.node for value in node.input}
    outputs = [value for node in graph.node for value in node.output if value and value not in read]
    graph.output.extend(onnx.ValueInfoProto(name=value) for value in outputs)
    opsets = [("", opset), ("com.microsoft", 1), ("ai.onnx.ml", 3)]
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid(*entry) for entry in opsets], ir_version=10)
    known = {value.name: value for value in onnx.shape_inference.infer_shapes(made).graph.output}
    for value in made.graph.output:
        value.CopyFrom(known[value.name])
    return made


def _spec(text: str) -> tuple[str, type, tuple[int, ...], list[str] | None]:
    """Return name, type, shape and values of "w:f 4,3=…"."""
    match = re.fullmatch(r"(\w+):(\w+)\s*([\d,]*)\s*(=.*)?", text)
    assert match, text
    label, kind, shape, values = match.groups()
    sizes = tuple(int(size) for size in shape.split(",") if size)
    return label, KINDS[kind], sizes, None if values is None else [v for v in values[1:].split(",") if v]


def shipped(cache: Path) -> dict[str, onnx.ModelProto]:
    """Return the models of the onnx package's own node tests; to make them takes seconds, so they are kept."""
    if not cache.is_file():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from onnx.backend.test.case.node import collect_testcases

            cases = collect_testcases()
        small = {case.name: data for case in cases if len(data := case.model.SerializeToString()) < 20_000}
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_bytes(pickle.dumps(small))
    return {name: onnx.ModelProto.FromString(data) for name, data in pickle.loads(cache.read_bytes()).items()}


def given(folder: Path, limit: int = 300_000) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yield the models of a folder that are not too large to mutate quickly."""
    for path in sorted(folder.rglob("*.onnx")):
        if path.stat().st_size <= limit:
            yield path.stem, onnx.load(path, load_external_data=False)
