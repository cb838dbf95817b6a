"""How a name is given its value: by signs in configuration and code, by words in sentences.

Every pattern is tried at one place only and reads a bounded number of bytes, so the time for a text grows with the
number of names in it and no faster.
"""

import re

_CLOSE = rb"(?:\\?[\"'`]|[*_\]]){0,4}"
_GAP = rb"[ \t]{0,24}"
_SIGN = rb"(?::=|=>|->|\+=|\?=|={1,3}|!=|<<<|::?|\|)"

ASSIGNED = re.compile(
    _CLOSE
    + _GAP
    + rb"(?::[ \t]{0,2}[&'?]?[A-Za-z_][A-Za-z0-9_<>\[\].|? ]{0,32}(?:[ \t]{1,3}=(?![=>])|=(?=[ \t\"'`]))|"
    + _SIGN
    + rb")(?:[*_]{1,3}(?=[ \t]))?"
    + _GAP
)
DECLARED = re.compile(rb"[ \t]{1,4}(?:\*?[A-Za-z\[\]]{2,12}[ \t]{0,4}:?=|by[ \t]lazy[ \t]{0,2}\{)[ \t]{0,4}(?=[\"'`])")
ELEMENT = re.compile(rb"[\"']?(?:\s[^<>\n]{0,120})?>\s{0,4}(?:<!\[CDATA\[)?([^<\x01]{1,1024}?)\s{0,4}(?:\]\]>)?(?=<)")
PAIRED = re.compile(
    rb"(?i)\\?[\"'`]?(?:</[A-Za-z:]{1,20}>|(?:\s[^<>\n]{0,80})?>)?\s{0,4}[,{]?\s{0,40}(?:-\s)?"
    rb"(?:[a-z_]{1,20}[ \t]{0,8}[=:][^\n]{0,80}\n\s{0,20}){0,3}"
    rb"(?:<(?:value|string)>\s{0,4}(?=[^<])"
    rb"|\\?[\"']?(?:value|val|content|default|default_value|data|stringvalue|plaintext)\\?[\"']?\s{0,4}(?:=>|[:=])\s{0,4})"
)
PASSED = re.compile(
    rb"(?:\\?[\"'`]\s{0,4}\]?\s{0,2},\s{0,8}|\(\s{0,4})(?:(?:default|value|val)\s?=\s?)?(?=[bru]?\\?[\"'])"
)
OPTION = re.compile(rb"[ \t]{1,4}")
SQL = re.compile(rb"(?i)[ \t]{1,4}(?:by[ \t]{1,4})?(?=[\"'])")
SAID = re.compile(
    _CLOSE + rb"(?:[ \t][A-Za-z0-9 \t()'/,@.\-]{0,60}?)??"
    rb"(?:[ \t](?:is|was|are|to|as|equals?|ist|sind|lautet|lauten|est|sont|es|son|e|jest|je|zijn|ar|er|on"
    rb"|reads|will be|now)"
    rb"(?:[ \t](?:now|still|just|set to|currently))?(?:[ \t]{0,2}[:=]|(?=\s))|[ \t][:=]|[:=](?=\s)|:"
    rb"|[ \t]{1,2}(?:(?:for|of|on|at|in)[ \t][A-Za-z0-9_.\-]{1,30}|\([^()\n]{1,30}\))="
    rb"|[ \t]{0,2}(?:\xff{1,2}|-{1,2}>?|\xff>)[ \t])"
    rb"\s{0,4}"
    rb"(?:```[a-z]{0,12}\s)?(?:\r?\n){0,2}[ \t]{0,8}"
)
BELOW = re.compile(
    _CLOSE + rb"(?:[^\n:=]{0,40}[:=]|[ \t](?:below|follows|attached)\.?)?[ \t]{0,4}"
    rb"(?:\r?\n){1,3}(?:```[a-z]{0,12}\s{1,4})?[ \t>]{0,8}"
)
ALONE = re.compile(rb"[\"'`]{0,3}[ \t.]{0,4}(?:\r?\n|$)")
NEXT = re.compile(rb",?[ \t]{1,2}(?:[0-9][ \t])?")
PARTICLE = re.compile(rb"[ \t]{0,2}\xff{1,4}[ \t:=]{0,3}")
LINE_STARTS = re.compile(
    rb"(?:^|\n|\\n)[ \t>+]{0,8}(?:-[ \t])?(?:export[ \t]+|set[ \t]+|setx[ \t]+|\$env:|ENV[ \t]+|ARG[ \t]+"
    rb"|local[ \t]+|readonly[ \t]+)?$"
)
WALLET = re.compile(
    _CLOSE + rb"[ \t]{0,4}[A-Za-z() ]{0,30}(?:[:=]|is|\n)\s{0,8}[\"'`]{0,3}"
    rb"((?:(?:[0-9]{1,2}[.):]?\s)?[a-z]{3,10}[\s,]{1,3}){10,24}[a-z]{3,10})(?![a-z])"
)
SPACED = re.compile(
    rb"[a-z]{4}(?: [a-z]{4}){3}(?![ \-]?[A-Za-z0-9])|[a-z]{3,10}(?: [a-z]{3,10}){3,23}(?=[.!]?[ \t]*(?:\n|$))"
)
"""Words in a row without quotes: an application password, or a pass phrase that takes the rest of its line."""

PHRASE_NAME = re.compile(rb"(?i)[ \-_]{0,1}(?:recovery[ \-_]|backup[ \-_])?(?:phrase|words)\b")
"""What makes a seed or a recovery the words of a wallet."""
