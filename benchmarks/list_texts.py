"""The texts of users, agents and failures in the store of lists."""

USER_NAMES = ("Grace", "Ada", "Alan", "Edsger", "Barbara", "Ken", "Radia", "Linus", "Margaret", "Dennis")

QUESTIONS = (
    "Could you look at the figures of week {number} once more, and say what you make of the dip on Thursday morning?",
    "The build of branch {number} is red again. Which of the last changes broke it, and who can mend it today?",
    "Please summarise ticket {number} for the board: what happened, what it cost us, and what we do about it now.",
    "invoice {number} was paid twice, I think. Check it against the statement, and draft a polite letter to the bank.",
    "When is the next maintenance of cluster {number}? Tell the team in the usual channel, and ask who is on call.",
    "Wie weit ist der Bericht {number}? Bitte fasse ihn in drei Sätzen zusammen, und nenne die offenen Punkte.",
    "What did we decide about proposal {number} last month, and who wanted to write to the auditors about it?",
)

ANSWERS = (
    "The dip comes from the maintenance window: the exporter was paused from 06:10 to 07:25, and nothing was lost. The "
    "figures of Friday include what was written late, so the week as a whole is right.",
    "Three changes went in since it was green. The second one moved the time zone into the settings, and two tests "
    "still expect the old default. I have written down which, with the line that has to change in each.",
    "In short: a certificate ran out at night, the retry hid it for an hour, and nine orders had to be entered again. "
    "It cost us half a day of two people. The renewal is automatic now, and an alarm asks a week before.",
    "Both payments left the same account on the same day, so it is the bank's mistake. Here is a letter that says so.",
)

ERRORS = ("ProviderDown", "RateLimited", "ContextTooLong", "DeliveryFailed", "ToolFailed", "Quarantined")

REASONS = {
    "ProviderDown": "anthropic answered 503 to request {number}: overloaded",
    "RateLimited": "every account is at its limit; the earliest is free in {number} seconds",
    "ContextTooLong": "the prompt has {number} tokens, and the model takes 200000",
    "DeliveryFailed": "the platform refused message {number}: unknown channel",
    "ToolFailed": "http_fetch: https://example.com/{number} answered 404",
    "Quarantined": "its process died 10 times in step model-1",
}
