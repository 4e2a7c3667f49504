"""Writes the network as an ONNX graph: token rows in, one pooled vector out, for one text at a time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.ai_providers.packaged.source import Source

OPSET = 17
ROWS = "rows"
POOLED = "pooled"


def build_graph(source: Source, *, quantised: bool) -> bytes:
    """The serialised model: input `rows` (tokens, hidden) float32, output `pooled` (hidden,) float32.

    A post-layer-norm BERT with erf GELU and mean pooling; positions and the token type are added inside, the vector
    is not normalised. `quantised` stores each layer's weights as int8 with one scale per output and quantises
    activations per call: four times smaller and faster; since the scale of activations belongs to a call, a graph
    without a batch axis makes a text's vector independent of its neighbours.
    """
    return _Writer(source, quantised=quantised).write()


def quantise_columns(weights: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Symmetric int8 of (inputs, outputs) with one float32 scale per output: weights = int8 * scale."""
    scales = np.maximum(np.abs(weights).max(axis=0), np.float32(1e-12)) / np.float32(127)
    return np.rint(weights / scales).astype(np.int8), scales.astype(np.float32)


class _Writer:
    def __init__(self, source: Source, *, quantised: bool) -> None:
        from onnx import helper, numpy_helper

        self._helper: Any = helper
        self._from_array: Any = numpy_helper.from_array
        self._source = source
        self._quantised = quantised
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}

    def write(self) -> bytes:
        helper, hidden = self._helper, self._source.shape.hidden
        state = self._embed()
        for layer in range(self._source.shape.layers):
            state = self._layer(f"l{layer}", state)
        self._node("ReduceMean", [state], POOLED, axes=[0], keepdims=0)
        float32 = 1
        graph = helper.make_graph(
            self._nodes,
            "multilingual-e5-small",
            [helper.make_tensor_value_info(ROWS, float32, ["tokens", hidden])],
            [helper.make_tensor_value_info(POOLED, float32, [hidden])],
            list(self._constants.values()),
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="stackroom")
        model.ir_version = 8
        serialised: bytes = model.SerializeToString(deterministic=True)
        return serialised

    def _embed(self) -> str:
        shape = self._source.shape
        positions = (
            self._source.tensor("emb.pos").reshape(-1, shape.hidden) + self._source.tensor("emb.type")[: shape.hidden]
        )
        table = self._constant("positions", positions.astype(np.float32))
        zero, one = self._constant("zero", np.array([0], np.int64)), self._constant("one", np.array([1], np.int64))
        size = self._node("Shape", [ROWS], "rows.shape")
        tokens = self._node("Slice", [size, zero, one], "rows.tokens")
        placed = self._node("Add", [ROWS, self._node("Slice", [table, zero, tokens], "rows.positions")], "rows.placed")
        return self._norm("emb.ln", placed)

    def _layer(self, name: str, state: str) -> str:
        attended = self._linear(f"{name}.ao", self._attention(name, state))
        state = self._norm(f"{name}.aln", self._node("Add", [attended, state], f"{name}.a.sum"))
        inner = self._gelu(f"{name}.gelu", self._linear(f"{name}.fi", state))
        outer = self._linear(f"{name}.fo", inner)
        return self._norm(f"{name}.oln", self._node("Add", [outer, state], f"{name}.o.sum"))

    def _attention(self, name: str, state: str) -> str:
        shape = self._source.shape
        width = shape.hidden // shape.heads
        scale = np.float32(width**-0.5)
        weights = [self._source.matrix(f"{name}.{part}") for part in "qkv"]
        biases = [self._source.tensor(f"{name}.{part}.b") for part in "qkv"]
        weights[0], biases[0] = weights[0] * scale, biases[0] * scale
        joined = self._multiply(f"{name}.qkv", state, np.concatenate(weights, axis=1), np.concatenate(biases))
        split = self._constant("split", np.array([0, 3, shape.heads, width], np.int64))
        parts = self._node("Reshape", [joined, split], f"{name}.parts")
        query, key, value = (f"{name}.{part}.heads" for part in "qkv")
        turned = self._node("Transpose", [parts], f"{name}.turned", perm=[1, 2, 0, 3])
        axis = self._constant("halves", np.array([1, 1, 1], np.int64))
        self._nodes.append(self._helper.make_node("Split", [turned, axis], [query, key, value], axis=0))
        keys = self._node("Transpose", [key], f"{name}.k.turned", perm=[0, 1, 3, 2])
        scores = self._node("MatMul", [query, keys], f"{name}.scores")
        shares = self._node("Softmax", [scores], f"{name}.shares", axis=-1)
        mixed = self._node("MatMul", [shares, value], f"{name}.mixed")
        back = self._node("Transpose", [mixed], f"{name}.back", perm=[0, 2, 1, 3])
        flat = self._constant("flat", np.array([-1, shape.hidden], np.int64))
        return self._node("Reshape", [back, flat], f"{name}.context")

    def _linear(self, name: str, state: str) -> str:
        return self._multiply(name, state, self._source.matrix(name), self._source.tensor(f"{name}.b"))

    def _multiply(self, name: str, state: str, weights: NDArray[np.float32], bias: NDArray[np.float32]) -> str:
        if self._quantised:
            product = self._integer_product(name, state, weights)
        else:
            product = self._node("MatMul", [state, self._constant(f"{name}.w", weights)], f"{name}.product")
        return self._node("Add", [product, self._constant(f"{name}.b", bias)], f"{name}.out")

    def _integer_product(self, name: str, state: str, weights: NDArray[np.float32]) -> str:
        """The chain that onnxruntime fuses into one kernel: quantise, multiply as integers, scale back."""
        values, scales = quantise_columns(weights)
        quantised, scale, zero = f"{name}.x", f"{name}.x.scale", f"{name}.x.zero"
        self._nodes.append(self._helper.make_node("DynamicQuantizeLinear", [state], [quantised, scale, zero]))
        operands = [quantised, self._constant(f"{name}.w", values), zero]
        none = self._constant(f"{name}.w.zero", np.zeros(len(scales), np.int8))
        integers = self._node("MatMulInteger", [*operands, none], f"{name}.integers")
        floats = self._node("Cast", [integers], f"{name}.floats", to=1)
        both = self._node("Mul", [scale, self._constant(f"{name}.w.scale", scales)], f"{name}.scale")
        return self._node("Mul", [floats, both], f"{name}.product")

    def _gelu(self, name: str, state: str) -> str:
        root = self._constant("sqrt2", np.array(2**0.5, np.float32))
        erf = self._node("Erf", [self._node("Div", [state, root], f"{name}.z")], f"{name}.erf")
        above = self._node("Add", [erf, self._constant("1", np.array(1, np.float32))], f"{name}.above")
        product = self._node("Mul", [state, above], f"{name}.twice")
        return self._node("Mul", [product, self._constant("half", np.array(0.5, np.float32))], f"{name}.out")

    def _norm(self, name: str, state: str) -> str:
        weight = self._constant(f"{name}.w", self._source.tensor(f"{name}.w"))
        bias = self._constant(f"{name}.b", self._source.tensor(f"{name}.b"))
        epsilon = self._source.shape.epsilon
        return self._node("LayerNormalization", [state, weight, bias], f"{name}.out", axis=-1, epsilon=epsilon)

    def _constant(self, name: str, value: NDArray[Any]) -> str:
        if name not in self._constants:
            self._constants[name] = self._from_array(value, name)
        return name

    def _node(self, operation: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self._nodes.append(self._helper.make_node(operation, inputs, [output], **attributes))
        return output
