"""Tools that need no network: memory search, the time, and arithmetic."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from datetime import datetime
from zoneinfo import ZoneInfo

from maestro.store.transaction import Transaction
from maestro.tools.base import Arguments, ToolCaller, ToolFailure, tool_spec

MOST = 20
USUAL = 5

MAX_CHARS = 1000
MAX_BITS = 14_000
"""The most bits of a whole number as a result; Python converts at most 4,300 digits to text."""
MAX_DIGITS = 300

Number = int | float

_AS_WRITTEN = str.maketrans({"^": "**", "×": "*", "·": "*", "÷": "/", "−": "-"})
_CONSTANTS = {"pi": math.pi, "e": math.e}


class MemorySearch:
    """The tool that searches the memory facts of the calling agent; it changes nothing."""

    spec = tool_spec(
        "memory_search",
        "Search what you remember from earlier conversations: facts about people, their preferences, projects and "
        "events. Returns the facts that fit best, one a line. Give a few words that would stand in the fact.",
        {
            "query": {
                "type": "string",
                "maxLength": 400,
                "description": "words to look for; leave it empty for the surest facts",
            },
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST, "description": f"most facts (default {USUAL})"},
        },
        ["query"],
    )
    idempotent = True
    read_only = True

    def act(self, tx: Transaction, arguments: Arguments, caller: ToolCaller) -> str:
        """Return the matching facts, best first, one per line."""
        facts = tx.memory.search_facts(caller.agent_id, arguments["query"], arguments.get("limit", USUAL), caller.place)
        lines = (f"- [{fact.category}, {fact.created_at:%Y-%m-%d}] {fact.content}" for fact in facts)
        return "\n".join(lines) or "Nothing you remember fits."


class GetTime:
    """The tool that returns the time in UTC, and in a time zone."""

    spec = tool_spec(
        "get_time",
        "Return the current date and time in UTC and, if you name a time zone, there too, with the day of the week. "
        "You do not know the time otherwise.",
        {
            "timezone": {
                "type": "string",
                "description": "an IANA time zone, such as Europe/Berlin or America/New_York; leave it out for UTC",
            }
        },
    )
    idempotent = True
    read_only = True

    def __init__(self, clock: Callable[[], datetime]) -> None:
        """``clock`` returns the present time, with a time zone."""
        self._clock = clock

    async def run(self, arguments: Arguments, caller: ToolCaller) -> str:  # noqa: ARG002 - required by the interface
        """Return the time to the second, with the day of the week."""
        now = self._clock()
        lines = [f"UTC: {_time_text(now.astimezone(ZoneInfo('UTC')))}"]
        name = arguments.get("timezone", "")
        if name:
            try:
                lines.append(f"{name}: {_time_text(now.astimezone(ZoneInfo(name)))}")
            except (OSError, ValueError, KeyError):
                raise ToolFailure(
                    f"There is no time zone {name[:64]!r}. Use an IANA name with a city, such as Europe/Berlin."
                ) from None
        return "\n".join(lines)


def _time_text(moment: datetime) -> str:
    return f"{moment.isoformat(timespec='seconds')} ({moment:%A})"


class Calculate:
    """The tool that evaluates an arithmetic expression."""

    spec = tool_spec(
        "calculate",
        "Evaluate an arithmetic expression and return the result. Use it for every calculation instead of doing it in "
        "your head. It knows + - * / // (whole division) % (remainder) ** or ^ (power), parentheses, the constants pi "
        "and e, and the functions sqrt, abs, round(x, digits), min, max, log (natural, or log(x, base)), exp, sin, "
        "cos, tan (radians), floor and ceil. Whole numbers are exact. Example: (15 * 8) / 3",
        {"expression": {"type": "string", "description": "the expression, such as 2 ** 10 or sqrt(2) / 3"}},
        ["expression"],
    )
    idempotent = True
    read_only = True

    async def run(self, arguments: Arguments, caller: ToolCaller) -> str:  # noqa: ARG002 - required by the interface
        """Return the value of the expression as text."""
        return evaluate_expression(arguments["expression"])


def evaluate_expression(expression: str) -> str:
    """Return the value of an expression as text; raises ``ToolFailure`` with the reason if it cannot be computed."""
    if len(expression) > MAX_CHARS:
        raise ToolFailure(f"The expression is longer than {MAX_CHARS} characters. Compute it in parts.")
    try:
        tree = ast.parse(expression.translate(_AS_WRITTEN).strip(), mode="eval")
        return _number_text(_evaluate_node(tree.body))
    except ZeroDivisionError:
        raise ToolFailure("Division by zero.") from None
    except OverflowError:
        raise _too_large() from None
    except (RecursionError, MemoryError):
        raise ToolFailure("The expression is nested too deeply. Compute it in parts.") from None
    except SyntaxError as error:
        raise ToolFailure(f"This is not an arithmetic expression ({error.msg}): {expression[:100]}") from None
    except (ValueError, TypeError) as error:
        raise ToolFailure(f"This cannot be computed: {error}.") from None


def _evaluate_node(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as number):
            return _require_bounds(number)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=operation, operand=operand) if type(operation) in _SIGNS:
            return _require_bounds(_SIGNS[type(operation)](_evaluate_node(operand)))
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATIONS:
            return _require_bounds(_OPERATIONS[type(operation)](_evaluate_node(left), _evaluate_node(right)))
        case ast.Call(func=ast.Name(id=name), args=values, keywords=[]) if name in _FUNCTIONS:
            return _require_bounds(_FUNCTIONS[name](*map(_evaluate_node, values)))
    raise ToolFailure(
        f"Only numbers, + - * / // % ** and parentheses, {', '.join(_CONSTANTS)} and the functions "
        f"{', '.join(_FUNCTIONS)} can be used; this cannot: {ast.unparse(node)[:100]}"
    )


def _require_bounds(value: object) -> Number:
    if isinstance(value, complex):
        raise ToolFailure("The result is not a real number.")
    assert isinstance(value, int | float)
    fits = value.bit_length() <= MAX_BITS if isinstance(value, int) else math.isfinite(value)
    if not fits:
        raise _too_large()
    return value


def power(base: Number, exponent: Number) -> object:
    # The size of a power is estimated first, because computing a huge one may never end.
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > MAX_BITS + abs(exponent):
        raise _too_large()
    return base**exponent


def _round(number: Number, digits: Number = 0) -> Number:
    # round() of a whole number computes the power of ten, however large, so the digits are limited.
    if not isinstance(digits, int) or abs(digits) > MAX_DIGITS:
        raise ToolFailure(f"round takes a whole number of digits, {MAX_DIGITS} at most.")
    return round(number, digits) if digits else round(number)


def _divide(dividend: Number, divisor: Number) -> Number:
    """Divide; a division without remainder returns a whole number, which is exact."""
    if isinstance(dividend, int) and isinstance(divisor, int) and divisor and dividend % divisor == 0:
        return dividend // divisor
    return dividend / divisor


def _too_large() -> ToolFailure:
    return ToolFailure("The result is too large to compute.")


def _number_text(value: Number) -> str:
    if isinstance(value, int):
        return str(value)
    text = format(value, ".15g")
    return text if float(text) == value or abs(value - float(text)) <= abs(value) * 1e-14 else repr(value)


_SIGNS: Mapping[type[ast.unaryop], Callable[[Number], Number]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_OPERATIONS: Mapping[type[ast.operator], Callable[[Number, Number], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: power,
}
_FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "sqrt": math.sqrt,
    "abs": abs,
    "round": _round,
    "min": min,
    "max": max,
    "log": math.log,
    "exp": math.exp,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "floor": math.floor,
    "ceil": math.ceil,
}
