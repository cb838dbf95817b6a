"""Two other ways to arrange the same steps, to see what the product's own arrangement costs and saves.

For a message without attachments, in a conversation that is not due for compaction, all three flows run the same
functions of the product (``choose_agent``, ``record_message``, ``build_context``, ``call_model``, ``record_answer``,
``deliver``) with the product's journal around each of them, on the product's worker and dispatcher: the rows they
write are the same. All three start with the same search attributes and upsert the same three at the end.

* **product**: ``workflows/message.py``. Route, record, context: local activities of one workflow task. Model: a
  regular activity. Recording the answer: a local activity. Delivery: a regular activity. The Temporal Web UI gets a
  summary for each step and the story so far.
* **naive**: the nine steps of the specification as nine regular activities, each awaited before the next: route,
  typing, media, conversation, compaction, context, model, tags, delivery. Media and compaction look whether there is
  anything to do, find nothing, and write nothing. No summaries, no story.
* **fused**: route, record and context inside one local activity; model: a regular activity; recording the answer and
  delivery inside one regular activity. The least that Temporal can be asked for, at the price of a history that no
  longer shows the steps. No summaries, no story.

``python -m benchmarks.flows naive up --config FILE`` runs ``maestro up`` with the flow of that name.
"""
