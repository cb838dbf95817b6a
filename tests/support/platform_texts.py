"""Texts with and without secrets, drawn from what platform teams write; their author has not read the scanner's rules.

Whoever changes a rule leaves this file alone, unless a "secret" in it is one that nobody could know as such.
"""

# ruff: noqa: E501, SIM905  # one form of a text a line: cut in two, it can no longer be read as what it is
# fmt: off

import base64
import json
import random
import string
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

LOWER = string.ascii_lowercase + string.digits
ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
URLSAFE = ALNUM + "-_"
BASE64 = ALNUM + "+/"
SIGNS = "!#$%^&*-_+=.?~"
WORDS = (
    "amber anchor apple arrow autumn badger basin birch bottle bridge cabin candle canyon cedar cinder cobalt copper coral "
    "cotton dawn delta ember falcon fern field flint forest garden glacier granite harbor hazel heron island ivory jasmine "
    "juniper kettle lantern lemon linen maple marble meadow mint mosaic oak ocean olive onyx orchard otter paper pebble "
    "pepper pine plum prairie quartz raven river saddle sage silver sparrow spruce stone summer thistle timber tulip "
    "valley velvet violet walnut willow winter"
).split()
SERVICES = "billing checkout search gateway ledger mailer inventory identity reports webhook importer notifier".split()
HOSTS = ("db.internal", "10.2.0.14", "pg-1.example.net", "cache.svc.cluster.local", "mq.example.org", "localhost")
PEOPLE = ("Ana", "Bram", "Chidi", "Dora", "Emil", "Fatou", "Gustav", "Hana", "Ilya", "Jun")


class SecretText(NamedTuple):
    """A text, and the secrets in it, none of whose characters may survive."""

    text: str
    secrets: tuple[str, ...]


def some(r: random.Random, alphabet: str, least: int, most: int | None = None) -> str:
    """Draw a string of between ``least`` and ``most`` characters."""
    return "".join(r.choices(alphabet, k=r.randint(least, most or least)))


def generated_password(r: random.Random) -> str:
    """Draw what a password generator makes: all kinds of characters, none that ends a word in a shell or URL."""
    parts = [r.choice(string.ascii_uppercase), r.choice(string.digits), r.choice(SIGNS), *r.choices(ALNUM + SIGNS, k=r.randint(9, 20))]
    r.shuffle(parts)
    # A mark at either end reads as punctuation to a person as well.
    return r.choice(ALNUM) + "".join(parts) + r.choice(ALNUM)


def typed_password(r: random.Random) -> str:
    """Draw what a person makes up: a word, a year, a sign."""
    word = r.choice(WORDS).capitalize()
    number = r.choice((str(r.randint(1975, 2026)), str(r.randint(10, 9999))))
    sign = r.choice("!#$*-_.")
    return r.choice((f"{word}{sign}{number}x", f"{number}{sign}{word}{sign}x{r.randint(1, 99)}", f"{word}{r.choice(WORDS).capitalize()}{number}{sign}9"))


def password(r: random.Random) -> str:
    """Draw a password."""
    return r.choice((generated_password, typed_password))(r)


def base64_of(r: random.Random, size: int) -> str:
    """Draw random bytes, in base64."""
    return base64.b64encode(r.randbytes(size)).decode()


def jwt(r: random.Random) -> str:
    """Draw a signed JSON web token."""
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    body = {"sub": str(r.randint(1000, 99999)), "name": r.choice(PEOPLE), "iat": r.randint(1_600_000_000, 1_800_000_000)}
    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(body)}.{some(r, URLSAFE, 43)}"


def private_key(r: random.Random) -> str:
    """Draw a private key in PEM."""
    kind = r.choice(("RSA PRIVATE KEY", "PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY", "ENCRYPTED PRIVATE KEY"))
    lines = [some(r, BASE64, 64) for _ in range(r.randint(4, 20))]
    return "\n".join((f"-----BEGIN {kind}-----", *lines, some(r, BASE64, 20, 60) + "==", f"-----END {kind}-----"))


TOKENS: Sequence[Callable[[random.Random], str]] = (
    lambda r: "AKIA" + some(r, string.ascii_uppercase + "234567", 16),
    lambda r: r.choice(("ghp_", "gho_", "ghs_", "ghu_")) + some(r, ALNUM, 36),
    lambda r: f"github_pat_{some(r, ALNUM, 22)}_{some(r, ALNUM, 59)}",
    lambda r: "glpat-" + some(r, URLSAFE.replace("-", ""), 20),
    lambda r: "glptt-" + some(r, HEX, 40),
    lambda r: f"xoxb-{r.randint(10**11, 10**12)}-{r.randint(10**12, 10**13)}-{some(r, ALNUM, 24)}",
    lambda r: f"xapp-1-A{some(r, string.ascii_uppercase + string.digits, 10)}-{r.randint(10**12, 10**13)}-{some(r, HEX, 64)}",
    lambda r: "sk-proj-" + some(r, URLSAFE.replace("-", ""), 74) + "T3BlbkFJ" + some(r, ALNUM, 74),
    lambda r: "sk-" + some(r, ALNUM, 20) + "T3BlbkFJ" + some(r, ALNUM, 20),
    lambda r: "sk-ant-api03-" + some(r, ALNUM + "_", 93) + "AA",
    lambda r: "sk-or-v1-" + some(r, HEX, 64),
    lambda r: "AIza" + some(r, ALNUM + "_", 35),
    lambda r: r.choice(("sk_live_", "rk_live_", "sk_test_")) + some(r, ALNUM, 24, 99),
    lambda r: "whsec_" + some(r, ALNUM, 32),
    lambda r: f"SG.{some(r, ALNUM, 22)}.{some(r, ALNUM, 43)}",
    lambda r: "npm_" + some(r, ALNUM, 36),
    lambda r: "pypi-AgEIcHlwaS5vcmc" + some(r, ALNUM + "_", 120, 160),
    lambda r: "hf_" + some(r, string.ascii_letters, 34),
    lambda r: "dop_v1_" + some(r, HEX, 64),
    lambda r: f"{r.randint(10**8, 10**10 - 1)}:AA{some(r, ALNUM + '_', 33)}",
    lambda r: "hvs." + some(r, ALNUM, 90, 100),
    lambda r: "dapi" + some(r, HEX, 32),
    lambda r: "shpat_" + some(r, HEX, 32),
    lambda r: "lin_api_" + some(r, ALNUM, 40),
    lambda r: "figd_" + some(r, ALNUM + "_", 40),
    lambda r: f"glsa_{some(r, ALNUM, 32)}_{some(r, HEX, 8)}",
    lambda r: "NRAK-" + some(r, string.ascii_uppercase + string.digits, 27),
    lambda r: "AGE-SECRET-KEY-1" + some(r, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    lambda r: "r8_" + some(r, ALNUM, 37),
    lambda r: "gsk_" + some(r, ALNUM, 52),
    lambda r: "xai-" + some(r, ALNUM, 80),
    lambda r: "pplx-" + some(r, ALNUM, 48),
    lambda r: "sbp_" + some(r, HEX, 40),
    lambda r: f"dp.pt.{some(r, ALNUM, 43)}",
    lambda r: "ATATT3xFfGF0" + some(r, URLSAFE.replace("-", ""), 180) + "=" + some(r, "0123456789ABCDEF", 8),
    jwt,
)
"""Tokens that their form alone gives away."""


def token_in_text(r: random.Random) -> SecretText:
    """A token of known form, in a sentence, a header, a command, a file or on its own."""
    secret = r.choice(TOKENS)(r)
    frame = r.choice(
        (
            "{}", "use {} for now", "the key is {}, please rotate it", "Authorization: Bearer {}", 'curl -H "Authorization: Bearer {}" https://api.example.com/v1/me',
            "TOKEN={}", 'token: "{}"', "export API_TOKEN='{}'", '{{"apiKey": "{}"}}', "I pushed `{}` by mistake!", "({})", "old: {}\nnew: see vault", "https://example.com/hook?token={}",
            "const client = new Client('{}');", "--api-key={}", "{} <- is this still valid?",
        )
    )
    return SecretText(frame.format(secret), (secret,))


def url_with_password(r: random.Random) -> SecretText:
    """A connection string; signs that would end the password in a URL are left out of it."""
    secret = "".join(c for c in password(r) if c not in "#?%/@:&=")
    scheme, port = r.choice((("postgres", 5432), ("postgresql", 5432), ("mysql", 3306), ("mongodb", 27017), ("redis", 6379), ("amqp", 5672), ("https", 443), ("ftp", 21)))
    user = r.choice(("", "app")) if scheme == "redis" else r.choice(("app", "root", "svc_" + r.choice(SERVICES), r.choice(PEOPLE).lower()))
    url = f"{scheme}://{user}:{secret}@{r.choice(HOSTS)}" + r.choice(("", f":{port}")) + r.choice(("", "/" + r.choice(SERVICES)))
    frame = r.choice(("{}", "DATABASE_URL={}", "connect with {} please", 'url: "{}"', "psql {}", "cannot connect to {}: timeout"))
    return SecretText(frame.format(url), (secret,))


def assigned_secret(r: random.Random) -> SecretText:
    """A password or key in a file of settings, in code, or as an option of a command."""
    key = r.choice(("password", "DB_PASSWORD", "POSTGRES_PASSWORD", "secret_key", "client_secret", "api_key", "API_SECRET", "auth_token", "admin_password", "aws_secret_access_key", "smtp_pass", "jwt_secret"))
    if key == "aws_secret_access_key":
        secret = some(r, BASE64, 40)
    elif "pass" in key:
        secret = password(r)
    else:
        secret = r.choice((some(r, HEX, 32, 64), some(r, ALNUM, 24, 48), some(r, URLSAFE.replace("-", ""), 32)))
    secret = secret.replace("$", "S").replace("#", "H").replace("&", "n").replace("*", "x").replace("!", "i")
    frame = r.choice(('{k}={s}', '{k} = "{s}"', "{k}: {s}", '"{k}": "{s}",', "export {k}='{s}'", "--{d}={s}", "--{d} '{s}'", "<{k}>{s}</{k}>", "set {k} to '{s}' on staging", "| {k} | {s} |"))
    return SecretText(frame.format(k=key, s=secret, d=key.replace("_", "-").lower()), (secret,))


def told_password(r: random.Random) -> SecretText:
    """A password as people tell it to each other."""
    secret = password(r)
    frame = r.choice(("the password is {}", "my password: {}", "login: admin / password: {}", "pw is {} (changes monday)", "wifi password = {}", "passwort: {}", "Password for the staging box is \"{}\"", "username app, password {}"))
    return SecretText(frame.format(secret), (secret,))


def other_secret(r: random.Random) -> SecretText:
    """Keys in blocks, headers and connection strings of other forms."""
    kind = r.randrange(6)
    if kind == 0:
        key = private_key(r)
        body = tuple(key.split("\n")[1:-1])
        return SecretText(r.choice(("", "here is the key:\n", "cat id_rsa\n")) + key, body)
    if kind == 1:
        secret = base64.b64encode(f"{r.choice(PEOPLE).lower()}:{password(r)}".encode()).decode()
        return SecretText(f"Authorization: Basic {secret}", (secret,))
    if kind == 2:
        secret = base64_of(r, 64)
        return SecretText(f"DefaultEndpointsProtocol=https;AccountName={r.choice(SERVICES)};AccountKey={secret};EndpointSuffix=core.windows.net", (secret,))
    if kind == 3:
        secret = generated_password(r).translate({ord(c): "x" for c in ";="})
        return SecretText(f"Server=sql.example.net;Database={r.choice(SERVICES)};User Id=sa;Password={secret};Encrypt=true", (secret,))
    if kind == 4:
        secret = f"T{some(r, string.ascii_uppercase + string.digits, 10)}/B{some(r, string.ascii_uppercase + string.digits, 10)}/{some(r, ALNUM, 24)}"
        return SecretText(f"post to https://hooks.slack.com/services/{secret}", (secret.rpartition("/")[2],))
    secret = password(r).replace("'", "x")
    return SecretText(f"curl -u admin:'{secret}' https://{r.choice(SERVICES)}.example.com/api", (secret,))


def secrets(seed: int, count: int) -> Iterator[SecretText]:
    """Draw texts that hold secrets, some of them in the middle of harmless ones."""
    r = random.Random(seed)
    kinds = (token_in_text, token_in_text, url_with_password, assigned_secret, told_password, other_secret)
    for _ in range(count):
        drawn = r.choice(kinds)(r)
        if r.random() < 0.3:
            drawn = SecretText(f"{prose(r)}\n{drawn.text}\n{prose(r)}", drawn.secrets)
        yield drawn


def slug(r: random.Random, least: int = 2, most: int = 5) -> str:
    """Draw words joined by hyphens."""
    return "-".join(r.choice(WORDS + SERVICES) for _ in range(r.randint(least, most)))


def prose(r: random.Random) -> str:
    """Draw a sentence of a team's chat."""
    return r.choice(
        (
            f"{r.choice(PEOPLE)} moved the {r.choice(SERVICES)} deploy to {r.randint(8, 18)}:{r.randint(10, 59)}, because of the {r.choice(WORDS)} release.",
            f"Can somebody look at {r.choice(SERVICES)}? p99 went from {r.randint(20, 90)} to {r.randint(200, 900)} ms after {r.randint(1, 9)}.{r.randint(0, 40)}.{r.randint(0, 9)}.",
            f"The password must have at least {r.randint(8, 20)} characters, a digit and a sign.",
            f"I rotated the token for {r.choice(SERVICES)} yesterday; the secret lives in the vault.",
            f"Reset your password at https://{r.choice(SERVICES)}.example.com/reset, then tell {r.choice(PEOPLE)}.",
            f"La clave está en el cajón del despacho, pregunta a {r.choice(PEOPLE)}.",
            f"Das Passwort wurde geändert, bitte melde dich bei {r.choice(PEOPLE)}.",
            f"The primary key of {r.choice(SERVICES)} is (tenant_id, {r.choice(WORDS)}_id).",
            f"Key point: {r.choice(WORDS)} and {r.choice(WORDS)} must not share a queue.",
            f"Meeting {r.randint(2024, 2027)}-0{r.randint(1, 9)}-1{r.randint(0, 9)} with {r.choice(PEOPLE)} and {r.choice(PEOPLE)} about token budgets: {r.randint(1000, 90000)} tokens a day.",
        )
    )


def branch_name(r: random.Random) -> str:
    """A branch, a tag or a folder."""
    ticket = f"{r.choice(('PROJ', 'OPS', 'PLAT', 'SEC'))}-{r.randint(1, 9999)}"
    name = r.choice(
        (
            f"{r.choice(('feature', 'fix', 'chore', 'release', 'hotfix'))}/{ticket.lower()}-{slug(r)}",
            f"{r.choice(('task', 'risk', 'disk', 'desk', 'ask', 'mask'))}-{r.choice(('proj', 'ant', 'or', 'live', 'test', 'svcacct'))}-{slug(r, 2, 6)}",
            f"dependabot/npm_and_yarn/{slug(r, 1, 2)}-{r.randint(1, 20)}.{r.randint(0, 30)}.{r.randint(0, 9)}",
            f"{r.choice(PEOPLE).lower()}/{slug(r, 4, 8)}",
            f"renovate/{slug(r, 1, 3)}-digest",
            f"v{r.randint(1, 9)}.{r.randint(0, 40)}.{r.randint(0, 9)}-rc.{r.randint(1, 9)}+build.{r.randint(100, 9999)}",
        )
    )
    return r.choice(("{}", "git checkout {}", "git push origin {}", "merged {} into main", "see branch {}", "On branch {}\nnothing to commit")).format(name)


def identifier(r: random.Random) -> str:
    """An id, a hash or a key that opens nothing."""
    one = str(uuid.UUID(int=r.getrandbits(128), version=4))
    snowflake = str(r.randint(10**17, 10**19))
    ulid = some(r, "0123456789ABCDEFGHJKMNPQRSTVWXYZ", 26)
    sha1, sha256 = some(r, HEX, 40), some(r, HEX, 64)
    word = r.choice(("dedup", "kafka", "memcache", "redis", "grouping", "sort", "partition", "cache", "primary", "foreign", "routing", "message", "idempotency", "object", "s3"))
    key = r.choice((f"msg-{r.randint(10**11, 10**12)}", f"user:{r.randint(1, 10**6)}:profile", f"{slug(r, 1, 3)}#{r.randint(2020, 2027)}", f"{r.choice(SERVICES)}/{one}", one, f"orders-{r.randint(10**5, 10**9)}", f"{r.choice(SERVICES)}.{r.choice(WORDS)}.v{r.randint(1, 9)}", sha1[:16]))
    return r.choice(
        (
            f"{word} key: {key}", f"{word}_key={key}", f"request {one} failed", f"request_id={ulid} trace_id={some(r, HEX, 32)} span_id={some(r, HEX, 16)}", f"commit {sha1}\nAuthor: {r.choice(PEOPLE)}",
            f"image: registry.example.com/{r.choice(SERVICES)}@sha256:{sha256}", f"reverted in {sha1[:10]}", f"message {snowflake} in channel {snowflake[::-1]}", f"job message-{ulid} is done",
            f"ETag: \"{some(r, HEX, 32)}\"", f"checksum: {some(r, HEX, 32)}", f'"integrity": "sha512-{base64_of(r, 64)}",', f"sha256sum says {sha256}  {slug(r)}.tar.gz",
            f"invoice INV-{r.randint(2020, 2027)}-{r.randint(1000, 999999)} for order #{r.randint(10**6, 10**9)}", f"pod/{r.choice(SERVICES)}-{some(r, LOWER, 9, 10)}-{some(r, LOWER, 5)}   1/1   Running",
            f"device {':'.join(some(r, HEX, 2) for _ in range(6))} at 192.0.2.{r.randint(1, 254)}", f"tx 0x{sha256} confirmed", f"arn:aws:iam::{r.randint(10**11, 10**12 - 1)}:role/{slug(r)}",
            f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA{some(r, BASE64, 43)} {r.choice(PEOPLE).lower()}@laptop", f"workflow id {r.choice(('message', 'cron', 'heartbeat'))}-{ulid} run {one}", f"session ended: {one}",
            f"file_{some(r, ALNUM, 12)}.pdf, page {r.randint(1, 99)}", f"ISBN 978-{r.randint(1, 9)}-{r.randint(10000, 99999)}-{r.randint(100, 999)}-{r.randint(0, 9)}",
        )
    )


def log_line(r: random.Random) -> str:
    """A line of a log."""
    time = f"2026-{r.randint(1, 12):02}-{r.randint(1, 28):02}T{r.randint(0, 23):02}:{r.randint(0, 59):02}:{r.randint(0, 59):02}.{r.randint(0, 999):03}Z"
    service = r.choice(SERVICES)
    return r.choice(
        (
            f"{time} INFO {service} [{some(r, HEX, 8)}] GET /api/v1/{r.choice(WORDS)}/{r.randint(1, 10**7)} 200 {r.randint(1, 900)}ms",
            f"{time} WARN {service}: retry {r.randint(1, 5)} of 5 for job {some(r, LOWER, 20)} in {r.randint(1, 60)}s",
            f"{time} ERROR {service} auth failed for user={r.choice(PEOPLE).lower()} reason=\"invalid password\" ip=203.0.113.{r.randint(1, 254)}",
            f'{{"ts":"{time}","level":"info","service":"{service}","trace":"{some(r, HEX, 32)}","msg":"token refreshed","ttl":{r.randint(60, 3600)}}}',
            f"[{time}] \"POST /oauth/token HTTP/1.1\" 401 {r.randint(10, 900)} \"-\" \"curl/8.{r.randint(0, 9)}.0\"",
            f"{service}-{r.randint(0, 9)}  | worker {r.randint(1, 9)} claimed lane web/{some(r, LOWER, 8)}/{r.randint(1, 99)} position {r.randint(1, 50)}",
            f"Traceback (most recent call last):\n  File \"/srv/{service}/main.py\", line {r.randint(1, 400)}, in <module>\nKeyError: '{r.choice(('api_key', 'password', 'token', r.choice(WORDS)))}'",
            f"kernel: [{r.randint(1, 99999)}.{r.randint(100000, 999999)}] nvme0n1: I/O {r.randint(1, 999)} QID {r.randint(1, 9)} timeout",
            f"level=info ts={time} caller=main.go:{r.randint(1, 400)} msg=\"config reloaded\" hash={some(r, HEX, 32)}",
        )
    )


def code_line(r: random.Random) -> str:
    """Code and settings that name secrets and hold none."""
    name = r.choice(("password", "api_key", "token", "secret", "DB_PASSWORD", "client_secret"))
    return r.choice(
        (
            f'{name} = os.environ["{name.upper()}"]', f"{name} = getpass.getpass()", f"const {name} = process.env.{name.upper()};", f"if not check_{name}({name}, user.{name}_hash):",
            f"{name}: ${{{name.upper()}}}", f"{name}: <your {name} here>", f'{name} = "********"', f"{name}: !vault {slug(r)}", f'"{name}": null,', f"{name}=env:{name.upper()}", f"{name}=file:/run/secrets/{name.lower()}",
            f"def rotate_{name.lower()}(self, {name.lower()}: str, ttl_seconds: int = {r.randint(60, 9999)}) -> None:", f"SELECT id, {name.lower()}_hash FROM users WHERE tenant = {r.randint(1, 999)};",
            f"secretKeyRef:\n  name: {slug(r, 2, 3)}\n  key: {r.choice(WORDS)}-{r.choice(('password', 'token'))}", f"assert response.json()[\"{name}\"] is None", f"kubectl get secret {slug(r, 2, 3)} -o yaml",
            f"for key, value in {r.choice(WORDS)}.items():  # {r.choice(WORDS)}", f"return hashlib.sha256({r.choice(WORDS)}.encode()).hexdigest()[:{r.randint(8, 40)}]",
            f"import {{ {r.choice(WORDS).capitalize()}Provider, use{r.choice(WORDS).capitalize()} }} from '@{r.choice(SERVICES)}/{slug(r, 1, 2)}';", f"color: #{some(r, HEX, 6)}; width: {r.randint(1, 100)}%;",
            f"x = {r.random():.12f} * 10 ** {r.randint(-9, 9)}", f"-----BEGIN CERTIFICATE-----\n{some(r, BASE64, 64)}\n{some(r, BASE64, 64)}\n-----END CERTIFICATE-----",
            f"url = 'https://{r.choice(SERVICES)}.example.com:8443/{r.choice(WORDS)}?page={r.randint(1, 99)}&sort=-created_at'", f"git@github.com:{r.choice(WORDS)}/{slug(r, 1, 3)}.git", f"http://localhost:{r.randint(3000, 9999)}/@{r.choice(PEOPLE).lower()}",
            f"docker run -e {name.upper()} -p {r.randint(1024, 9999)}:80 {r.choice(SERVICES)}:1.{r.randint(0, 30)}", f"type {r.choice(WORDS).capitalize()}Key = keyof typeof {r.choice(WORDS)}Map;",
        )
    )


def harmless(seed: int, count: int) -> Iterator[str]:
    """Draw texts that hold no secret."""
    r = random.Random(seed)
    kinds = (branch_name, identifier, identifier, log_line, code_line, prose)
    for _ in range(count):
        yield r.choice(kinds)(r)
