"""One spec from the specs of a program at several sizes: numbers that differ become expressions of the axes, checked at every one of the
sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from .lowering import Refused

Point = Mapping[str, int]


def points_of(axes: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]


def unify(points: Sequence[Point], specs: Sequence[dict[str, Any]], hints: Mapping[str, int]) -> dict[str, Any]:
    """The spec with the points' axes. Raises Refused where the program is another one at some of the sizes."""
    if len(specs) == 1 and not points[0]:
        return specs[0]
    body = _join(points, list(specs), "the program")
    axes: dict[str, Any] = {}
    for name in points[0]:
        values = sorted({p[name] for p in points})
        axes[name] = {"type": "var", "values": values}
        if name in hints:
            axes[name]["hint"] = hints[name]
    return {
        "version": body["version"],
        "name": body["name"],
        "axes": axes,
        **{k: v for k, v in body.items() if k not in ("version", "name")},
    }


def _join(points: Sequence[Point], values: list[Any], where: str) -> Any:
    first = values[0]
    if all(v == first and type(v) is type(first) for v in values):
        return first
    if all(isinstance(v, dict) for v in values) and all(list(v) == list(first) for v in values):
        return {k: _join(points, [v[k] for v in values], k) for k in first}
    if all(isinstance(v, list) for v in values) and all(len(v) == len(first) for v in values):
        return [_join(points, [v[i] for v in values], where) for i in range(len(first))]
    if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        return _expression(points, values, where)
    raise Refused(f"it is another program at other sizes ({where})")


def _expression(points: Sequence[Point], values: list[int], where: str) -> str:
    """a * product of axes + b, or such a product divided, that has all of the values."""
    names = list(points[0])
    for count in range(1, len(names) + 1):
        for subset in itertools.combinations(names, count):
            products = [math.prod(p[n] for n in subset) for p in points]
            i = next((k for k in range(len(products)) if products[k] != products[0]), None)
            if i is None:
                continue
            a = Fraction(values[i] - values[0], products[i] - products[0])
            b = values[0] - a * products[0]
            if b.denominator == 1 and all(a * p + b == v for p, v in zip(products, values)):
                return _text("*".join(subset), a, int(b))
    raise Refused(f"a number that is no expression of the axes: {where} is {', '.join(map(str, values))}")


def _text(product: str, a: Fraction, b: int) -> str:
    out = product if abs(a.numerator) == 1 else f"{abs(a.numerator)}*{product}"
    out = out if a.denominator == 1 else f"{out}/{a.denominator}"
    if a < 0:
        return f"{b}-{out}"
    return out if b == 0 else f"{out}+{b}" if b > 0 else f"{out}-{-b}"
