"""The tokens that services and makers of language models are publicly known to give out: how each looks."""

_SERVICES = """
mst_ [A-Za-z0-9_\\-]{30,}
xoxb- [A-Za-z0-9\\-]{20,}
xoxp- [A-Za-z0-9\\-]{20,}
xoxa- [A-Za-z0-9\\-]{20,}
xoxr- [A-Za-z0-9\\-]{20,}
xoxs- [A-Za-z0-9\\-]{20,}
xoxo- [A-Za-z0-9\\-]{20,}
xoxc- [A-Za-z0-9\\-]{20,}
xoxd- [A-Za-z0-9%/+=\\-]{20,}
xoxe- [A-Za-z0-9%/+=\\-]{20,}
xoxe. xox[bp]-[A-Za-z0-9\\-]{20,}
xapp- [A-Za-z0-9\\-]{20,}
xwfp- [A-Za-z0-9\\-]{20,}
sk_live_ [A-Za-z0-9_]{14,}
sk_test_ [A-Za-z0-9_]{14,}
rk_live_ [A-Za-z0-9_]{14,}
rk_test_ [A-Za-z0-9_]{14,}
sk_prod_ [A-Za-z0-9_]{14,}
rk_prod_ [A-Za-z0-9_]{14,}
whsec_ [A-Za-z0-9+/=]{24,}
sq0csp- [A-Za-z0-9_\\-]{40,}
sq0atp- [A-Za-z0-9_\\-]{20,}
sq0idp- [A-Za-z0-9_\\-]{20,}
EAAA [A-Za-z0-9_\\-]{56,64} digits
EAA [A-Za-z0-9]{90,} digits
EAACEdEose0cBA [A-Za-z0-9]{20,}
IGQV [A-Za-z0-9_\\-]{60,} digits
shpat_ [a-fA-F0-9]{30,}
shpca_ [a-fA-F0-9]{30,}
shppa_ [a-fA-F0-9]{30,}
shpss_ [a-fA-F0-9]{30,}
shpua_ [a-fA-F0-9]{30,}
shptka_ [a-fA-F0-9]{30,}
shprt_ [a-fA-F0-9]{30,}
SG. [A-Za-z0-9_\\-]{16,}\\.[A-Za-z0-9_\\-]{30,}
key- [a-f0-9]{32}
pubkey- [a-f0-9]{32}
xkeysib- [a-f0-9]{40,}-[A-Za-z0-9]{10,}
xsmtpsib- [a-f0-9]{40,}-[A-Za-z0-9]{10,}
re_ [A-Za-z0-9]{8,}_[A-Za-z0-9]{20,} digits
mlsn. [a-f0-9]{60,}
SK [a-f0-9]{32} whole
AC [a-f0-9]{32} whole
access_token$production$ [a-z0-9]{10,}\\$[a-f0-9]{30,}
access_token$sandbox$ [a-z0-9]{10,}\\$[a-f0-9]{30,}
rzp_live_ [A-Za-z0-9]{14,}
rzp_test_ [A-Za-z0-9]{14,}
FLWSECK_TEST- [a-zA-Z0-9]{12,}
FLWSECK- [a-zA-Z0-9\\-]{12,}
FLWSECK_LIVE- [a-zA-Z0-9\\-]{12,}
EZAK [A-Za-z0-9]{54} whole
EZTK [A-Za-z0-9]{54} whole
duffel_test_ [A-Za-z0-9_\\-=]{40,}
duffel_live_ [A-Za-z0-9_\\-=]{40,}
shippo_live_ [a-fA-F0-9]{40}
shippo_test_ [a-fA-F0-9]{40}
live_ [A-Za-z0-9_\\-]{30,} digits
test_ [A-Za-z0-9]{30,} digits
access-sandbox- [a-f0-9\\-]{36}
access-development- [a-f0-9\\-]{36}
access-production- [a-f0-9\\-]{36}
fio-u- [A-Za-z0-9_\\-=]{40,}
pat-na1- [a-f0-9\\-]{36}
pat-eu1- [a-f0-9\\-]{36}
pat [A-Za-z0-9]{14}\\.[a-f0-9]{40,}
pat. [A-Za-z0-9_\\-]{22}\\.[A-Za-z0-9]{20,}\\.[A-Za-z0-9]{16,}
lob_live_ [a-f0-9]{30,}
sdk- [a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9\\-]{20,}
mob- [a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9\\-]{20,}
api- [a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9\\-]{20,}
sl. [A-Za-z0-9_\\-]{100,}
sl.u. [A-Za-z0-9_\\-]{60,}
vk1.a. [A-Za-z0-9_\\-]{60,}
pk. eyJ[A-Za-z0-9_\\-]{30,}\\.[A-Za-z0-9_\\-]{16,}
sk. eyJ[A-Za-z0-9_\\-]{30,}\\.[A-Za-z0-9_\\-]{16,}
tk. eyJ[A-Za-z0-9_\\-]{30,}\\.[A-Za-z0-9_\\-]{16,}
dG9rO [A-Za-z0-9+/]{50,}={0,2} digits
ABBX [A-Za-z0-9]{40,} digits
zpka_ [A-Za-z0-9_]{30,}
ksk_ [A-Za-z0-9]{20,} digits
sk_ [a-f0-9]{40,}
sk_ [A-Za-z0-9]{40,} digits
xi- [a-f0-9]{32}
s-s4t2ud- [a-f0-9]{40,}
s-s4t2af- [a-f0-9]{40,}
xprv [A-Za-z0-9]{90,}
yprv [A-Za-z0-9]{90,}
zprv [A-Za-z0-9]{90,}
edsk [A-Za-z0-9]{50,} digits
nsec1 [a-z0-9]{58} whole
suprs_ [A-Za-z0-9]{30,}
trigger_ [A-Za-z0-9_\\-]{30,} digits
tr_dev_ [A-Za-z0-9]{20,}
tr_prod_ [A-Za-z0-9]{20,}
signkey-prod- [a-f0-9]{40,}
signkey-test- [a-f0-9]{40,}
"""

_MODELS = """
sk-ant- [A-Za-z0-9]+-[A-Za-z0-9_\\-]{20,}
sk-proj- [A-Za-z0-9_\\-]{20,}
sk-svcacct- [A-Za-z0-9_\\-]{20,}
sk-admin- [A-Za-z0-9_\\-]{20,}
sk-None- [A-Za-z0-9_\\-]{20,}
sk-or- v1-[a-f0-9]{40,}
sk-lf- [a-f0-9\\-]{30,}
pk-lf- [a-f0-9\\-]{30,}
sk- [A-Za-z0-9]{20,} digits
sess- [A-Za-z0-9]{30,} digits
hf_ [A-Za-z0-9]{30,}
api_org_ [A-Za-z0-9]{30,}
gsk_ [A-Za-z0-9]{40,}
xai- [A-Za-z0-9]{60,}
pplx- [A-Za-z0-9]{40,}
r8_ [A-Za-z0-9]{30,}
csk- [a-z0-9]{40,}
tvly- [A-Za-z0-9_\\-]{24,}
lsv2_pt_ [a-f0-9]{32}_[a-f0-9]{8,}
lsv2_sk_ [a-f0-9]{32}_[a-f0-9]{8,}
ls__ [a-f0-9]{32}
pcsk_ [A-Za-z0-9_]{40,}
fw_ [A-Za-z0-9]{22,} digits
tgp_v1_ [A-Za-z0-9_\\-]{36,}
fc- [a-f0-9]{32}
e2b_ [a-f0-9]{40}
jina_ [A-Za-z0-9_\\-]{40,}
pa- [A-Za-z0-9_\\-]{40,} digits
co_ [A-Za-z0-9]{36,} digits
wb_ [A-Za-z0-9]{40,} digits
wandb_v1_ [A-Za-z0-9_]{40,}
dsk- [A-Za-z0-9]{30,}
exa_ [A-Za-z0-9\\-]{30,}
apify_api_ [A-Za-z0-9]{30,}
llx- [A-Za-z0-9]{40,}
unsk- [A-Za-z0-9]{20,}
modal-ak- [A-Za-z0-9]{20,}
ak- [A-Za-z0-9]{22} whole digits
as- [A-Za-z0-9]{22} whole digits
rpa_ [A-Z0-9]{30,}[a-z0-9]*
"""

SERVICES = _SERVICES + _MODELS
"""One kind a line, see ``maestro.scanner.tokens.table``."""
