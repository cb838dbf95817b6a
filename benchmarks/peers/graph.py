"""The graph of LangGraph's server, as its quick start has it: one node that asks the model. It runs over there."""

from typing import Any

from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]
from langgraph.graph import START, MessagesState, StateGraph  # type: ignore[import-not-found]

model = ChatOpenAI(model="gpt-4o-mini")


async def answer(state: MessagesState) -> dict[str, Any]:
    """Ask the model with all messages of the thread."""
    return {"messages": [await model.ainvoke(state["messages"])]}


graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer").compile()
