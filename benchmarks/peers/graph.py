"""The graph for LangGraph's server, as in its quick start: one node that calls the model. It runs in that server."""

from typing import Any

from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]
from langgraph.graph import START, MessagesState, StateGraph  # type: ignore[import-not-found]

model = ChatOpenAI(model="gpt-4o-mini")


async def answer(state: MessagesState) -> dict[str, Any]:
    """Call the model with all messages of the thread."""
    return {"messages": [await model.ainvoke(state["messages"])]}


graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer").compile()
