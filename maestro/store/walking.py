"""Lists that are read in their order, from the newest on, until a page is full."""

from typing import Any

from sqlalchemy import ColumnElement
from sqlalchemy.sql.expression import UnaryExpression
from sqlalchemy.sql.operators import custom_op


def walked(column: Any) -> ColumnElement[Any]:
    """Return a column by which rows are sifted, and not found.

    SQLite would rather find the rows by an index on the column, all ninety thousand of a status, and sort them. A
    unary plus forbids it: the index of the list's order is read until the page is full.
    """
    expression: ColumnElement[Any] = column.expression
    return UnaryExpression(expression, operator=custom_op("+"), type_=expression.type)
