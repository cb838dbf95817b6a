"""The tokens that clouds and the makers of tools for programmers are publicly known to give out: how each looks."""

_CLOUD = """
AKIA [A-Z0-9]{16} whole
ASIA [A-Z0-9]{16} whole
ABIA [A-Z0-9]{16} whole
ACCA [A-Z0-9]{16} whole
A3T [A-Z0-9]{17} whole
ABSK [A-Za-z0-9+/]{60,}
bedrock-api-key- [A-Za-z0-9+/=]{20,}
IQoJb3JpZ2lu [A-Za-z0-9+/=]{60,}
FwoGZXIvYXdz [A-Za-z0-9+/=]{60,}
FQoGZXIvYXdz [A-Za-z0-9+/=]{60,}
amzn.mws. [0-9a-f]{8}-[0-9a-f-]{20,}
amzn1.oa2-cs.v1. [0-9a-f]{40,}
Atza| [A-Za-z0-9_\\-]{40,}
Atzr| [A-Za-z0-9_\\-]{40,}
AIza [A-Za-z0-9_\\-]{33,}
AQ.Ab [A-Za-z0-9_\\-]{30,}
GOCSPX- [A-Za-z0-9_\\-]{20,}
ya29. [A-Za-z0-9_\\-.]{20,}
1//0 [A-Za-z0-9_\\-]{30,}
4/0A [A-Za-z0-9_\\-]{40,}
GOOG [A-Z0-9]{20,57} whole digits
dop_v1_ [a-f0-9]{40,}
doo_v1_ [a-f0-9]{40,}
dor_v1_ [a-f0-9]{40,}
DO00 [A-Z0-9]{16} whole
HRKU- [A-Za-z0-9_\\-]{30,}
fo1_ [A-Za-z0-9_\\-]{30,}
fm1_ [A-Za-z0-9+/=_]{40,}
fm1a_ [A-Za-z0-9+/=_]{40,}
fm1r_ [A-Za-z0-9+/=_]{40,}
fm2_ [A-Za-z0-9+/=_]{40,}
LTAI [A-Za-z0-9]{12,26} digits
AKID [A-Za-z0-9]{32} whole
AKLT [A-Za-z0-9_\\-]{20,}
AQVN [A-Za-z0-9_\\-]{35,38} whole
YCAJE [A-Za-z0-9_\\-]{20} whole
YCM [A-Za-z0-9_\\-]{37} whole
y0_ [A-Za-z0-9_\\-]{30,}
y1_ [A-Za-z0-9_\\-]{30,}
t1. [A-Za-z0-9_\\-]{60,}\\.[A-Za-z0-9_\\-]{60,}
v1.0- [a-f0-9]{24}-[a-f0-9]{100,}
cfut_ [A-Za-z0-9_\\-]{30,}
cfat_ [A-Za-z0-9_\\-]{30,}
cfk_ [A-Za-z0-9_\\-]{30,}
oci_ [A-Za-z0-9]{40,}
SCW [A-Z0-9]{17} whole digits
tk-us- [A-Za-z0-9_\\-]{40,}
nfp_ [A-Za-z0-9_\\-]{30,}
rnd_ [A-Za-z0-9]{28,}
vcp_ [A-Za-z0-9]{20,}
vci_ [A-Za-z0-9]{20,}
vca_ [A-Za-z0-9]{20,}
vcr_ [A-Za-z0-9]{20,}
vck_ [A-Za-z0-9]{20,}
vercel_blob_rw_ [A-Za-z0-9_]{30,}
tskey- [a-z]+-[A-Za-z0-9\\-]{10,}
hvs. [A-Za-z0-9_\\-]{20,}
hvb. [A-Za-z0-9_\\-]{20,}
hvr. [A-Za-z0-9_\\-]{20,}
s. [A-Za-z0-9]{24} whole digits
b.AAAAAQ [A-Za-z0-9_\\-]{60,}
pul- [a-f0-9]{40}
K10 [a-f0-9]{64}::[A-Za-z0-9_\\-:]{16,}
SWMTKN-1- [a-z0-9\\-]{50,}
PortainerUI_ [A-Za-z0-9]{20,}
ptr_ [A-Za-z0-9+/=]{30,}
sha256~ [A-Za-z0-9_\\-]{43}
rancher-token- [a-z0-9:]{40,}
AGE-SECRET-KEY-1 [A-Z0-9]{40,}
AGE-SECRET-KEY-PQ-1 [A-Z0-9]{40,}
AGE-PLUGIN- [A-Z0-9\\-]{40,}
nvapi- [A-Za-z0-9_\\-]{50,}
dapi [a-f0-9]{32}
dkea [a-f0-9]{32}
dose [a-f0-9]{32}
dsapi [a-f0-9]{32}
ddp [A-Za-z0-9]{36} whole digits
pscale_tkn_ [A-Za-z0-9_\\-.=]{30,}
pscale_pw_ [A-Za-z0-9_\\-.=]{30,}
pscale_oauth_ [A-Za-z0-9_\\-.=]{30,}
pscale_api_ [A-Za-z0-9_\\-.=]{30,}
sbp_ [a-f0-9]{40}
sb_secret_ [A-Za-z0-9_\\-]{20,}
napi_ [a-z0-9]{40,}
AVNS_ [A-Za-z0-9_\\-]{18,}
4b1d [A-Za-z0-9]{38} whole
cfc_ [A-Za-z0-9]{30,}
"""

_CODE = """
ghp_ [A-Za-z0-9]{30,}
gho_ [A-Za-z0-9]{30,}
ghu_ [A-Za-z0-9]{30,}
ghs_ [A-Za-z0-9_\\-.]{30,}
ghr_ [A-Za-z0-9]{30,}
github_pat_ [A-Za-z0-9_]{36,}
v1. [0-9a-f]{40} whole
glpat- [A-Za-z0-9_\\-.]{16,}
gldt- [A-Za-z0-9_\\-.]{16,}
glrt- [A-Za-z0-9_\\-.]{16,}
glrtr- [A-Za-z0-9_\\-.]{16,}
glptt- [A-Za-z0-9_\\-.]{16,}
glft- [A-Za-z0-9_\\-.]{16,}
glsoat- [A-Za-z0-9_\\-.]{16,}
glcbt- [A-Za-z0-9_\\-.]{16,}
glimt- [A-Za-z0-9_\\-.]{16,}
glagent- [A-Za-z0-9_\\-.]{16,}
gloas- [A-Za-z0-9_\\-.]{16,}
glffct- [A-Za-z0-9_\\-.]{16,}
glwt- [A-Za-z0-9_\\-.]{16,}
GR1348941 [A-Za-z0-9_\\-]{18,}
npm_ [A-Za-z0-9]{30,}
pypi- [A-Za-z0-9_\\-]{40,}
rubygems_ [a-f0-9]{40,}
cio [A-Za-z0-9]{32} whole digits
CLOJARS_ [a-z0-9]{50,}
oy2 [a-z0-9]{43} whole
dckr_pat_ [A-Za-z0-9_\\-]{20,}
dckr_oat_ [A-Za-z0-9_\\-]{20,}
bkua_ [a-z0-9]{30,}
bkct_ [A-Za-z0-9._\\-]{20,}
bkpt_ [A-Za-z0-9._\\-]{20,}
CCIPAT_ [A-Za-z0-9_]{20,}
CCIPRJ_ [A-Za-z0-9_]{20,}
AKCp [A-Za-z0-9]{50,} digits
cmVmd [A-Za-z0-9]{50,} digits
sqp_ [a-f0-9]{40}
squ_ [a-f0-9]{40}
sqa_ [a-f0-9]{40}
sgp_ [A-Za-z0-9_]{40,}
slk_ [a-f0-9]{60,}
snyk_uat. [a-z0-9]{8}\\.[A-Za-z0-9_.\\-]{20,}
ATATT3 [A-Za-z0-9_\\-=]{40,}
ATCTT3 [A-Za-z0-9_\\-=]{40,}
ATBB [A-Za-z0-9_=.\\-]{24,} digits
ATTA [A-Za-z0-9]{60,} digits
ATSTT [A-Za-z0-9_\\-=]{40,}
dp.pt. [A-Za-z0-9]{30,}
dp.st. [A-Za-z0-9_.\\-]{30,}
dp.ct. [A-Za-z0-9]{30,}
dp.sa. [A-Za-z0-9]{30,}
dp.scim. [A-Za-z0-9]{30,}
dp.audit. [A-Za-z0-9]{30,}
p8e- [a-zA-Z0-9]{28,}
API- [A-Z0-9]{25,} digits
tfp_ [A-Za-z0-9_\\-]{30,}
ico- [A-Za-z0-9]{32}
pnu_ [A-Za-z0-9]{30,}
pnb_ [A-Za-z0-9]{30,}
rdme_ [a-z0-9]{40,}
waka_ [0-9a-f\\-]{30,}
sntrys_ [A-Za-z0-9+/=_\\-]{40,}
sntryu_ [a-f0-9]{40,}
sntrya_ [a-f0-9]{40,}
glc_ [A-Za-z0-9+/=]{30,}
glsa_ [A-Za-z0-9_]{30,}
eyJrIjoi [A-Za-z0-9+/=_\\-]{30,}
dt0c01. [A-Z0-9]{20,}\\.[A-Z0-9]{40,}
dt0s [0-9]{2}\\.[A-Z0-9]{8,}\\.[A-Z0-9]{40,}
NRAK- [A-Z0-9]{20,}
NRJS- [a-f0-9]{18,}
NRII- [A-Za-z0-9_\\-]{20,}
NRBR- [a-f0-9]{20,}
NRSP- [a-z0-9]{20,}
PMAK- [a-f0-9]{20,}-[a-f0-9]{20,}
PMAT- [A-Z0-9]{20,}
hcaik_ [A-Za-z0-9]{40,}
hcxik_ [A-Za-z0-9]{40,}
hcamk_ [A-Za-z0-9]{40,}
mnsk_ [A-Za-z0-9_\\-]{20,}
ops_ eyJ[A-Za-z0-9+/=_\\-]{60,}
aio_ [A-Za-z0-9]{26,}
phc_ [A-Za-z0-9]{40,}
phx_ [A-Za-z0-9]{40,}
phs_ [A-Za-z0-9]{40,}
figd_ [A-Za-z0-9_\\-]{36,}
figo_ [A-Za-z0-9_\\-]{36,}
figoh_ [A-Za-z0-9_\\-]{36,}
lin_api_ [A-Za-z0-9]{30,}
lin_oauth_ [A-Za-z0-9]{30,}
secret_ [A-Za-z0-9]{40,} digits
ntn_ [A-Za-z0-9]{40,}
CFPAT- [A-Za-z0-9_\\-]{40,}
clh_ [a-z0-9]{30,}
gitea_ [a-f0-9]{40}
cst_ [A-Za-z0-9]{40,} digits
cs_ [a-z0-9]{40,} digits
"""

BUILDERS = _CLOUD + _CODE
"""One kind a line, see ``maestro.scanner.tokens.table``."""
