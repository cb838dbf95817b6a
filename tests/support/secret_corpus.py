"""Texts with secrets in them, drawn from a seed: no token is stored anywhere, each is built from its parts."""

import base64
import random
import re
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_ALPHABETS = {
    "A": string.ascii_letters + string.digits,
    "a": string.ascii_lowercase + string.digits,
    "h": "0123456789abcdef",
    "U": string.ascii_uppercase + "234567",
    "W": string.ascii_letters + string.digits + "_-",
    "B": string.ascii_letters + string.digits + "+/",
    "d": string.digits,
    "l": string.ascii_lowercase,
    "Q": string.ascii_uppercase + string.digits,
}
_FIELD = re.compile(r"\{([A-Za-z])(\d+)\}|\{(uuid|jwt|pass|pass2|login64)\}")

MARKED = {
    "aws access key": "AKIA{U16}",
    "aws temporary key": "ASIA{U16}",
    "google api key": "AIza{W35}",
    "google oauth secret": "GOCSPX-{W28}",
    "google oauth token": "ya29.{W80}",
    "github classic": "ghp_{A36}",
    "github oauth": "gho_{A36}",
    "github user": "ghu_{A36}",
    "github server": "ghs_{A36}",
    "github refresh": "ghr_{A36}",
    "github fine-grained": "github_pat_{A22}_{A59}",
    "gitlab personal": "glpat-{W20}",
    "gitlab runner": "glrt-{W20}",
    "gitlab deploy": "gldt-{W20}",
    "gitlab trigger": "glptt-{h40}",
    "slack bot": "xoxb-{d12}-{d12}-{A24}",
    "slack user": "xoxp-{d12}-{d12}-{d12}-{h32}",
    "slack app": "xapp-1-A{Q10}-{d13}-{h64}",
    "slack webhook": "https://hooks.slack.com/services/T{Q8}/B{Q8}/{A24}",
    "discord bot": "M{A23}.{W6}.{W27}",
    "discord webhook": "https://discord.com/api/webhooks/{d18}/{W68}",
    "telegram bot": "{d10}:AA{W33}",
    "stripe live": "sk_live_{A24}",
    "stripe restricted": "rk_live_{A24}",
    "stripe webhook": "whsec_{A32}",
    "twilio key": "SK{h32}",
    "sendgrid": "SG.{W22}.{W43}",
    "mailgun": "key-{h32}",
    "mailchimp": "{h32}-us12",
    "openai legacy": "sk-{A48}",
    "openai project": "sk-proj-{W74}T3BlbkFJ{W74}",
    "anthropic": "sk-ant-api03-{W93}AA",
    "huggingface": "hf_{A34}",
    "groq": "gsk_{A52}",
    "replicate": "r8_{A37}",
    "perplexity": "pplx-{A48}",
    "openrouter": "sk-or-v1-{h64}",
    "nvidia": "nvapi-{W64}",
    "npm": "npm_{A36}",
    "pypi": "pypi-AgEIcHlwaS5vcmc{W80}",
    "rubygems": "rubygems_{h48}",
    "docker": "dckr_pat_{W27}",
    "digitalocean": "dop_v1_{h64}",
    "heroku": "HRKU-AA{W58}",
    "shopify": "shpat_{h32}",
    "square": "sq0atp-{W22}",
    "databricks": "dapi{h32}",
    "vault": "hvs.{W24}",
    "terraform": "{A14}.atlasv1.{W67}",
    "pulumi": "pul-{h40}",
    "grafana": "glsa_{A32}_{h8}",
    "sentry": "sntrys_{B80}",
    "new relic": "NRAK-{Q27}",
    "postman": "PMAK-{h24}-{h34}",
    "linear": "lin_api_{A40}",
    "notion": "ntn_{d11}{A35}",
    "airtable": "pat{A14}.{h64}",
    "figma": "figd_{W40}",
    "atlassian": "ATATT3xFfGF0{W180}",
    "doppler": "dp.pt.{A43}",
    "planetscale": "pscale_tkn_{W43}",
    "supabase": "sbp_{h40}",
    "netlify": "nfp_{A36}",
    "tailscale": "tskey-auth-{A17}-{A32}",
    "azure app secret": "{A3}8Q~{W31}",
    "azure storage key": "{B76}+ASt{B6}==",
    "facebook": "EAA{A170}",
    "dropbox": "sl.{W136}",
    "age": "AGE-SECRET-KEY-1{Q58}",
    "jwt": "{jwt}",
    "fly": "fm2_{B120}",
    "buildkite": "bkua_{h40}",
    "sonarqube": "squ_{h40}",
    "dynatrace": "dt0c01.{Q24}.{Q64}",
    "brevo": "xkeysib-{h64}-{A16}",
    "alibaba": "LTAI{A20}",
    "sourcegraph": "sgp_{h16}_{h40}",
    "circleci": "CCIPAT_{A22}_{h40}",
    "url with password": "postgres://app:{pass}@db.internal:5432/app",
    "redis url": "redis://:{A24}@cache.internal:6379/0",
}
"""Kinds that are known by their own form, wherever they stand."""

NAMED = {
    "password": ("DB_PASSWORD", "password", "{pass}"),
    "simple password": ("SMTP_PASS", "smtp password", "{pass2}"),
    "generic api key": ("API_KEY", "API key", "{A32}"),
    "hex key": ("ENCRYPTION_KEY", "encryption key", "{h64}"),
    "uuid key": ("HEROKU_API_KEY", "api key", "{uuid}"),
    "aws secret": ("AWS_SECRET_ACCESS_KEY", "aws secret access key", "{B40}"),
    "datadog": ("DD_API_KEY", "datadog api key", "{h32}"),
    "twilio token": ("TWILIO_AUTH_TOKEN", "auth token", "{h32}"),
    "client secret": ("CLIENT_SECRET", "client secret", "{W40}"),
    "session secret": ("SESSION_SECRET", "session secret", "{a50}"),
    "azure devops": ("AZURE_DEVOPS_TOKEN", "access token", "{a52}"),
    "cloudflare": ("CLOUDFLARE_API_TOKEN", "cloudflare api token", "{W40}"),
    "secret key base": ("SECRET_KEY_BASE", "secret key", "{h128}"),
    "algolia": ("ALGOLIA_ADMIN_KEY", "admin key", "{h32}"),
    "rabbit": ("RABBITMQ_DEFAULT_PASS", "rabbitmq password", "{A20}"),
}
"""Kinds without a form: the name beside them tells; a name in configuration, one in a sentence, and the form."""


@dataclass(frozen=True)
class Sample:
    """A text, and the secret that is to be gone from it without leaving a character."""

    kind: str
    form: str
    text: str
    secret: str


def draw(rng: random.Random, pattern: str) -> str:
    """Return a value of a form."""

    def field(match: "re.Match[str]") -> str:
        if match[3]:
            return _SPECIAL[match[3]](rng)
        return "".join(rng.choices(_ALPHABETS[match[1]], k=int(match[2])))

    return _FIELD.sub(field, pattern)


def _password(rng: random.Random) -> str:
    letters = [rng.choice(string.ascii_lowercase), rng.choice(string.ascii_uppercase), rng.choice(string.digits)]
    rest = rng.choices(string.ascii_letters + string.digits + "!$%^*_+-", k=rng.randint(7, 17))
    whole = [*letters, *rest]
    rng.shuffle(whole)
    return rng.choice(string.ascii_letters) + "".join(whole)


def _simple(rng: random.Random) -> str:
    word = rng.choice(["summer", "Dragon", "monkey", "Winter", "falcon", "Berlin", "coffee"])
    return f"{word}{rng.choice(['', '!', '_', '#'])}{rng.randint(10, 9999)}"


def _jwt(rng: random.Random) -> str:
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
    body = base64.urlsafe_b64encode(
        f'{{"sub":"{rng.randint(1, 10**9)}","iat":{rng.randint(10**9, 2 * 10**9)}}}'.encode()
    )
    return f"{header}.{body.decode().rstrip('=')}.{draw(rng, '{W43}')}"


def _uuid(rng: random.Random) -> str:
    return draw(rng, "{h8}-{h4}-4{h3}-a{h3}-{h12}")


_SPECIAL: dict[str, Callable[[random.Random], str]] = {
    "pass": _password,
    "pass2": _simple,
    "jwt": _jwt,
    "uuid": _uuid,
    "login64": lambda rng: base64.b64encode(f"bob:{_password(rng)}".encode()).decode(),
}

_ANYWHERE = {
    "sentence": "I think {v} was what we used yesterday, can somebody check?",
    "quoted": 'The deploy failed with "{v}" in the log.',
    "code span": "please rotate `{v}` today",
    "bracket": "the old one ({v}) is still active.",
    "end": "here you are: {v}",
    "start": "{v} does not work any more",
    "env": "APP_ENV=prod\nTHE_VALUE={v}\nPORT=8080",
    "json": '{{"name": "app", "value": "{v}", "port": 8080}}',
    "yaml": "app:\n  value: {v}\n  port: 8080",
    "python": "client = Client('{v}', timeout=3)",
    "list": "- first\n- {v}\n- last",
    "lines": "two lines\n{v}\nand one more",
    "shell": "curl -H 'X-Thing: {v}' https://api.example.com/v1",
    "table": "| prod | {v} | ok |",
    "log": "2026-11-22T10:11:12Z ERROR upstream said no (value={v}) after 3 attempts",
    "html": "<td>{v}</td>",
}
_BY_NAME = {
    "env": "APP_ENV=prod\n{N}={v}\nPORT=8080",
    "export": 'export {N}="{v}"',
    "json": '{{"port": 8080, "{n_}": "{v}", "debug": false}}',
    "yaml": "app:\n  {n_}: {v}\n  port: 8080",
    "yaml quoted": "app:\n  {nC}: '{v}'\n",
    "python": '{n_} = "{v}"',
    "keyword": "connect(host='db', {n_}='{v}', port=5432)",
    "javascript": "const {nC} = '{v}';",
    "typescript": 'const {nC}: string = "{v}";',
    "java": 'private static final String {N} = "{v}";',
    "go": '{nC} := "{v}"',
    "csharp": 'var {nC} = "{v}";',
    "ruby": "{n_}: '{v}',",
    "php": "'{n_}' => '{v}',",
    "xml": "<config><{n_}>{v}</{n_}></config>",
    "xml attribute": '<add key="{nC}" value="{v}" />',
    "ini": "[main]\n{n_} = {v}\nport = 5432",
    "properties": "app.{nD}={v}",
    "flag": "tool --{nH} {v} --verbose",
    "flag equals": "tool --{nH}={v} --verbose",
    "kubernetes": '- name: {N}\n  value: "{v}"',
    "sentence is": "the {n} is {v}",
    "sentence colon": "Here is the {n}: {v}",
    "bold": "**{n}**: `{v}`",
    "next line": "this is the {n}:\n{v}",
    "for": "the {n} for staging is {v}, please keep it safe",
}


def marked(seed: int, count: int) -> Iterator[Sample]:
    """Draw texts with secrets of every form that is known by itself."""
    rng = random.Random(seed)
    for _ in range(count):
        for kind, pattern in MARKED.items():
            form = rng.choice(sorted(_ANYWHERE))
            value = draw(rng, pattern)
            yield Sample(kind, form, _ANYWHERE[form].format(v=value), _secret_part(value))


def named(seed: int, count: int) -> Iterator[Sample]:
    """Draw texts with secrets that only their name tells."""
    rng = random.Random(seed)
    for _ in range(count):
        for kind, (name, said, pattern) in NAMED.items():
            form = rng.choice(sorted(_BY_NAME))
            value = draw(rng, pattern)
            yield Sample(kind, form, _with_name(_BY_NAME[form], name, said, value), value)


def blocks(seed: int, count: int) -> Iterator[Sample]:
    """Draw private keys in several lines, whole and cut."""
    rng = random.Random(seed)
    for _ in range(count):
        for label in (
            "RSA PRIVATE KEY",
            "PRIVATE KEY",
            "EC PRIVATE KEY",
            "OPENSSH PRIVATE KEY",
            "PGP PRIVATE KEY BLOCK",
        ):
            lines = [draw(rng, "{B64}") for _ in range(rng.randint(4, 24))]
            body = "\n".join([*lines, draw(rng, "{B30}") + "=="])
            whole = f"-----BEGIN {label}-----\n{body}\n-----END {label}-----"
            secret, form = rng.choice(
                [(whole, "whole"), (whole[: -rng.randint(40, 200)], "cut"), (whole.replace("\n", "\\n"), "escaped")]
            )
            yield Sample(label, form, f"here is the key\n{secret}", secret)


def _secret_part(value: str) -> str:
    login = re.search(r"://[^/]*?:(.+)@", value)
    if login:
        return login[1]
    return value.split("services/", 1)[-1].split("webhooks/", 1)[-1]


def _with_name(form: str, name: str, said: str, value: str) -> str:
    words = name.lower().split("_")
    return form.format(
        N=name,
        n=said,
        n_="_".join(words),
        nC=words[0] + "".join(word.title() for word in words[1:]),
        nD=".".join(words),
        nH="-".join(words),
        v=value,
    )
