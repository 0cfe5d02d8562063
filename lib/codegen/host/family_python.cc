// What NAME.py of a library that serves several programs has beside python.cc: a table of points by the shapes of the inputs. Shapes that
// no point has are an error, or are padded to the next point where that is asked for and known to leave the results as they are
// (FamilyAxis::is_padded).
#include <optional>

#include "codegen/names.h"
#include "codegen/host/python_parts.h"

namespace mirage {
namespace {

/// Of a dimension whose extent is a multiple of one axis: the axis and the factor.
std::optional<std::pair<size_t, int64_t>> along(const FamilyFacts& f, size_t tensor, int d) {
  const auto extent = [&](size_t p) { return f.points[p].tensors[tensor].info->type.dims[d]; };
  for (size_t a = 0; a < f.axes.size(); a++) {
    const int64_t c = extent(0) / f.values[0][a];
    bool fits = c > 0, varies = false;
    for (size_t p = 0; p < f.points.size(); p++) fits = fits && extent(p) == c * f.values[p][a], varies = varies || extent(p) != extent(0);
    if (fits && varies) return std::pair(a, c);
  }
  return std::nullopt;
}

/// Per tensor its dimensions along axes: (dimension, axis, factor).
std::string along_rows(const FamilyFacts& f, bool outputs) {
  std::vector<std::string> rows;
  for (size_t t = 0; t < f.hinted().tensors.size(); t++) {
    if (f.hinted().tensors[t].is_output != outputs) continue;
    std::vector<std::string> dims;
    for (int d = 0; d < f.hinted().tensors[t].info->type.dims.rank(); d++)
      if (const auto a = along(f, t, d))
        dims.push_back("(" + std::to_string(d) + ", " + std::to_string(a->first) + ", " + std::to_string(a->second) + ")");
    rows.push_back(python_list(dims));
  }
  return python_list(rows);
}

constexpr const char* kSeveralSizes = R"~(_Axis = _collections.namedtuple("_Axis", "name values is_padded")
_Point = _collections.namedtuple("_Point", "values dims inputs outputs")
_AXES = @AXES@


class _Dims(_ctypes.Structure):
    _fields_ = [("struct_size", _ctypes.c_uint32), ("reserved", _ctypes.c_uint32)] + [("axis%d" % i, _ctypes.c_int64) for i in range(len(_AXES))]


_structs = []  # points have their addresses


def _point(values, inputs, outputs):
    _structs.append(_Dims(_ctypes.sizeof(_Dims), 0, *values))
    return _Point(values, _ctypes.addressof(_structs[-1]), inputs, outputs)


_ALL_POINTS = (
@POINTS@)
_INPUTS, _OUTPUTS = _ALL_POINTS[0].inputs, _ALL_POINTS[0].outputs
_POINTS = {tuple(t.shape for t in p.inputs@IF_TENSOR@): p for p in _ALL_POINTS}
_INPUTS_ALONG = @INPUTS_ALONG@  # per input: dimension, axis, and how many elements each step of the axis is
_OUTPUTS_ALONG = @OUTPUTS_ALONG@
)~";

constexpr const char* kLargest = R"~(    most = 0  # one workspace serves all points
    for point in _ALL_POINTS:
        _check(_library.@NAME@_workspace_size(point.dims, _ctypes.byref(size)), "workspace_size")
        most = max(most, size.value)
    return most
)~";

constexpr const char* kFind = R"~(
def _served():
    return ", ".join("%s = %s" % (a.name, " or ".join(map(str, a.values))) for a in _AXES)


def _varies(name, d):
    return len({t.shape[d] for p in _ALL_POINTS for t in p.inputs if t.name == name}) > 1


def _sizes(tensors):
    """What each axis is, by the shapes; None where they contradict each other or differ from every point in another dimension too."""
    sizes = [None] * len(_AXES)
    for x, want, rows in zip(tensors, _INPUTS, _INPUTS_ALONG):
        if want.shape is None:
            continue
        if x.dim() != len(want.shape):
            return None
        free = set()
        for d, axis, factor in rows:
            free.add(d)
            if x.shape[d] % factor or sizes[axis] not in (None, x.shape[d] // factor):
                return None
            sizes[axis] = x.shape[d] // factor
        if any(d not in free and n != w and not _varies(want.name, d) for d, (n, w) in enumerate(zip(x.shape, want.shape))):
            return None
    return None if None in sizes else sizes


def _expression(numbers):
    """A number of each point as (factor, axes, rest): factor times the axes' product, and rest."""
    values = [p.values for p in _ALL_POINTS]
    for mask in range(1 << len(_AXES)):
        axes = [a for a in range(len(_AXES)) if mask >> a & 1]
        products = [1] * len(values)
        for a in axes:
            products = [p * v[a] for p, v in zip(products, values)]
        other = next((i for i, p in enumerate(products) if p != products[0]), 0)
        factor = (numbers[other] - numbers[0]) // (products[other] - products[0]) if other else 0
        rest = numbers[0] - factor * products[0]
        if all(n == factor * p + rest for n, p in zip(numbers, products)):
            return factor, axes if factor else [], rest
    raise ValueError("@NAME@: shapes of this library cannot be symbols (%s of %s): trace it at sizes that are known" % (numbers, _served()))


def _symbolic_point(tensors):
    """Of shapes with symbols, as torch.compile and torch.export trace with: its numbers are expressions of them."""
    sizes = [None] * len(_AXES)
    inputs, outputs = [], []
    for i, (x, want) in enumerate(zip(tensors, _INPUTS)):
        shape = want.shape
        if shape is not None and x.dim() == len(shape):
            found = [_expression([p.inputs[i].shape[d] for p in _ALL_POINTS]) for d in range(len(shape))]
            for n, (factor, axes, rest) in zip(x.shape, found):
                if len(axes) == 1 and sizes[axes[0]] is None:
                    sizes[axes[0]] = (n - rest) // factor
            shape = tuple(n if axes else rest for n, (_, axes, rest) in zip(x.shape, found))
        inputs.append(want._replace(shape=shape))
    if None in sizes:
        raise ValueError("@NAME@: the shapes of the inputs do not say %s" % _AXES[sizes.index(None)].name)

    def at_sizes(lists):
        out = []
        for factor, axes, rest in (_expression([numbers[d] for numbers in lists]) for d in range(len(lists[0]))):
            for a in axes:
                factor = factor * sizes[a]
            out.append(factor + rest if axes else rest)
        return tuple(out)

    for i, y in enumerate(_OUTPUTS):
        all_y = [p.outputs[i] for p in _ALL_POINTS]
        outputs.append(y._replace(shape=at_sizes([t.shape for t in all_y]), strides=at_sizes([t.strides for t in all_y])))
    return _Point(None, None, tuple(inputs), tuple(outputs))


def _find(tensors):
    """The point whose inputs have these shapes."""
    try:
        point = _POINTS.get(tuple(@SHAPES@))
    except (AttributeError, TypeError):  # no tensor; a symbol has no hash
        point = None
    if point is not None:
        return point
    for x, want in zip(tensors, _INPUTS):
        if want.shape is not None and not isinstance(x, _torch.Tensor):
            raise TypeError("@NAME@: %s must be a torch.Tensor, not %s" % (want.name, type(x).__name__))
    if any(want.shape is not None and any(isinstance(n, _torch.SymInt) for n in x.shape) for x, want in zip(tensors, _INPUTS)):
        return _symbolic_point(tensors)
    sizes = _sizes(tensors)
    if sizes is None:
        shapes = ", ".join(str(tuple(x.shape)) for x, want in zip(tensors, _INPUTS) if want.shape is not None)
        raise ValueError("@NAME@: no size of this library (%s) has inputs of shapes %s" % (_served(), shapes))
    wrong = ["%s is %d" % (a.name, n) for a, n in zip(_AXES, sizes) if n not in a.values]
    hint = " (pad=True pads to the next)" if all(a.is_padded and 1 <= n <= a.values[-1] for a, n in zip(_AXES, sizes) if n not in a.values) else ""
    raise ValueError("@NAME@: %s, and this library has %s%s" % (" and ".join(wrong), _served(), hint))


def _padded(tensors):
    """The inputs with zeros up to the next point, and the sizes to cut results back to; None: there is nothing to pad."""
    if not all(want.shape is None or isinstance(x, _torch.Tensor) for x, want in zip(tensors, _INPUTS)):
        return None  # its error comes with the call
    sizes = _sizes(tensors)
    if sizes is None or all(n in a.values for n, a in zip(sizes, _AXES)):
        return None
    values = []
    for n, a in zip(sizes, _AXES):
        larger = [v for v in a.values if v >= n]
        if n < 1 or not larger:
            raise ValueError("@NAME@: %s is %d, and this library has %s" % (a.name, n, _served()))
        if n not in a.values and not a.is_padded:
            raise ValueError("@NAME@: %s is %d, and cannot be padded: zeros along it would change the results. This library has %s" % (a.name, n, _served()))
        values.append(larger[0])
    point = next(p for p in _ALL_POINTS if p.values == tuple(values))
    out = []
    for x, want in zip(tensors, point.inputs):
        if want.shape is not None and tuple(x.shape) != want.shape:
            full = _torch.empty_strided(want.shape, want.strides, dtype=x.dtype, device=x.device).zero_()
            full[tuple(slice(0, n) for n in x.shape)] = x
            x = full
        out.append(x)
    return out, sizes


def _cut(results, sizes, into):
    """Results without what padding added; into: tensors that take them, or None."""
    out = []
    for y, rows in zip(results, _OUTPUTS_ALONG):
        for d, axis, factor in rows:
            y = y.narrow(d, 0, sizes[axis] * factor)
        out.append(y)
    if into is not None:
        out = [to.copy_(y) for to, y in zip(into, out)]
    return out[0] if len(out) == 1 else tuple(out)

)~";

constexpr const char* kPads = R"~(    padding__ = _padded((@PARAMETERS@,)) if @PADDED@ else None
    if padding__ is not None:
        results__ = @NAME@(*padding__[0])
        return _cut(@RESULTS_TUPLE@, padding__[1], @OUT_TUPLE@)
)~";

std::string point_rows(const FamilyFacts& f) {
  std::string out;
  for (size_t p = 0; p < f.points.size(); p++)
    out += "    _point(" + python_tuple(f.values[p]) + ", " + python_list(python_rows(f.points[p], false)) + ", " +
           python_list(python_rows(f.points[p], true)) + "),\n";
  return out;
}

}  // namespace

std::string emit_python(const FamilyFacts& f) {
  const ModuleFacts& hint = f.hinted();
  PythonParts parts;
  std::string axes_text;
  std::vector<std::string> axes;
  for (const FamilyAxis& a : f.axes) {
    axes.push_back("_Axis(" + c_literal(a.name) + ", " + python_tuple(a.values) + ", " + (a.is_padded ? "True" : "False") + ")");
    std::string values;
    for (int64_t v : a.values) values += (values.empty() ? "" : ", ") + std::to_string(v);
    axes_text += (axes_text.empty() ? "" : "; ") + a.name + " = " + values;
  }
  for (size_t t = 0; t < hint.tensors.size(); t++) parts.types.push_back(type_text(f, t));
  parts.sizes = "One library for several sizes: " + axes_text +
                ". The shapes of the inputs choose; others are a ValueError, or, with pad=True, are padded with zeros to the next size, "
                "and the results cut back.\n\n";
  const bool has_values = hint.has_values(), is_single = hint.program.outputs.size() == 1;
  parts.needs_cublas = any_cublas(f.kernels);
  parts.tables = kSeveralSizes;
  const auto put = [](std::string& text, const std::string& key, const std::string& value) {
    text.replace(text.find(key), key.size(), value);
  };
  put(parts.tables, "@AXES@", python_list(axes));
  put(parts.tables, "@POINTS@", point_rows(f));
  put(parts.tables, "@INPUTS_ALONG@", along_rows(f, false));
  put(parts.tables, "@OUTPUTS_ALONG@", along_rows(f, true));
  put(parts.tables, "@IF_TENSOR@", has_values ? " if t.shape is not None" : "");
  parts.largest = kLargest;
  parts.find = kFind;
  put(parts.find, "@SHAPES@",
      has_values ? "x.shape for x, want in zip(tensors, _INPUTS) if want.shape is not None" : "x.shape for x in tensors");
  parts.point_of_inputs = "_find(tensors)";
  parts.point_of_all = "_find(tensors[: len(_INPUTS)])";
  parts.pads = kPads;
  put(parts.pads, "@RESULTS_TUPLE@", is_single ? "(results__,)" : "results__");
  put(parts.pads, "@OUT_TUPLE@", is_single ? "None if @OUT@ is None else (@OUT@,)" : "@OUT@");
  return python_text(hint, parts);
}

}  // namespace mirage
