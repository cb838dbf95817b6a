"""Texts without a secret in them that look, one way or another, as if there were one."""

import base64
import hashlib
import random
import uuid
from collections.abc import Callable, Iterator

_STOCK = """
deploy cache queue worker build branch review merge timeout retry index schema table column parser token stream buffer
socket thread lock release rollback feature metric trace span report budget agent planner coder session
"""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_WORDS = _words(_STOCK)


def harmless(seed: int, count: int) -> Iterator[tuple[str, str]]:
    """Draw kinds and texts; every kind comes equally often."""
    rng = random.Random(seed)
    kinds = sorted(_KINDS)
    for number in range(count):
        kind = kinds[number % len(kinds)]
        yield kind, _KINDS[kind](rng)


def _some(rng: random.Random, least: int, most: int) -> str:
    return " ".join(rng.choices(_WORDS, k=rng.randint(least, most)))


def _hex(rng: random.Random, size: int) -> str:
    return f"{rng.getrandbits(size * 4):0{size}x}"


def _bytes(rng: random.Random, size: int) -> str:
    return base64.b64encode(rng.randbytes(size)).decode()


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _prose(rng: random.Random) -> str:
    return f"I think the {_some(rng, 1, 2)} needs a {_some(rng, 1, 2)} before we {_some(rng, 2, 6)}. What do you think?"


def _about_secrets(rng: random.Random) -> str:
    return rng.choice(
        [
            "The password must have at least 12 characters, one digit and one sign.",
            "Please put the API key into the vault, never into the chat.",
            "password: required, string, 8-64 characters",
            "The token expired after 3600 seconds, so I asked for a new one.",
            "Set OPENAI_API_KEY in your environment and start again.",
            "We rotate the client secret every 90 days.",
            "the secret of good tests is that they can fail",
            'raise InvalidToken("token has expired")',
            "api_key: ${API_KEY}",
            "password=os.environ['DB_PASSWORD']",
            'token = response.json()["access_token"]',
            "Authorization: Bearer <your token>",
            "Authorization: Bearer $TOKEN",
            "curl -u $USER:$PASSWORD https://api.example.com",
            "INSERT INTO users (name, password) VALUES (:name, :password)",
            "wget -P downloads2024 https://example.org/file.zip",
            "openssl enc -aes-256-cbc -pbkdf2 -in a -out b",
            "https://user:password@example.com/ is how you write it",
            "Password: ********",
            "secret: [redacted]",
            "PASSWORD=changeme",
            "max_tokens=4096 total_tokens: 12345",
            "next_page_token: CAUQAA",
            "the primary key is (tenant_id, created_at)",
            "password = getpass.getpass('Password: ')",
            "if user.password != hash_password(given): raise Forbidden",
            "key: value pairs are sorted by key",
            "{% csrf_token %} is missing in the form",
            "passwordHash: bcrypt, 12 rounds; tokenType: Bearer",
            "sk-... keys belong into .env, AKIA... ids into ~/.aws/credentials",
            "A PEM file begins with -----BEGIN PRIVATE KEY----- and ends with -----END PRIVATE KEY-----.",
            "export GITHUB_TOKEN=$(gh auth token)",
            "secretName: db-credentials, secretKeyRef: {name: app, key: password}",
        ]
    )


def _code(rng: random.Random) -> str:
    name, other = rng.choice(_WORDS), rng.choice(_WORDS)
    return rng.choice(
        [
            f"def {name}_{other}(self, key: str, token: Token | None = None) -> int:\n    return self._{name}[key]",
            f"const {name}Key = `${{prefix}}:{other}:${{id}}`;\nawait cache.set({name}Key, value, {{ ttl: 60 }});",
            f"func (s *{name.title()}) Get(ctx context.Context, key string) error {{\n\treturn s.db.{other}(key)\n}}",
            f"public class {name.title()}{other.title()}Token extends Token {{ private final String key; }}",
            f"for (const [key, value] of Object.entries({name})) console.log(key, value.{other});",
            f"self.assertEqual(tokens[{rng.randint(0, 9)}].type, TokenType.{other.upper()})",
            f"keys = sorted({name}.keys(), key=lambda key: key.{other})",
            f'<input type="password" name="{name}_password" placeholder="Password" autocomplete="new-password">',
            f"password: z.string().min(8).max(64),\n{name}: z.enum(['{other}'])",
            f"assert response.headers['authorization'] == f'Bearer {{{name}.token}}'",
        ]
    )


def _log(rng: random.Random) -> str:
    return (
        f"2026-11-{rng.randint(1, 28):02} 10:{rng.randint(0, 59):02}:07,{rng.randint(100, 999)} INFO "
        f"[{rng.choice(_WORDS)}-{rng.randint(1, 16)}] request_id={_uuid(rng)} trace_id={_hex(rng, 32)} "
        f"status={rng.randint(200, 504)} took={rng.randint(1, 900)}ms tokens={rng.randint(10, 9000)}"
    )


def _trace(rng: random.Random) -> str:
    first, second = rng.choice(_WORDS), rng.choice(_WORDS)
    return (
        f'Traceback (most recent call last):\n  File "/srv/app/{first}/{second}.py", line {rng.randint(1, 400)}, in '
        f"{second}\n    self._{first}.get(key)\nKeyError: '{first}_{second}_{rng.randint(1, 99)}'"
    )


def _java_trace(rng: random.Random) -> str:
    return "\n".join(
        [
            f"java.lang.IllegalStateException: {_some(rng, 3, 6)}",
            *(
                f"\tat com.acme.{rng.choice(_WORDS)}.Token{rng.choice(_WORDS).title()}.run(Token.java:{n})"
                for n in (12, 80, 341)
            ),
        ]
    )


def _foreign(rng: random.Random) -> str:
    return rng.choice(
        [
            "Привет! Сегодня мы обновили сервер, всё работает как раньше. Спасибо за помощь.",
            "Ключ к успеху — хорошие тесты, а не пароль от сервера.",
            "Забули пароль? Натисніть тут, щоб отримати новий.",
            "今日は新しいバージョンをリリースしました。パスワードの変更をお願いします。",
            "我们今天更新了服务器，请大家重新登录，并修改密码。",
            "비밀번호를 잊으셨나요? 여기를 눌러 새로 만드세요.",
            "Το κλειδί της επιτυχίας είναι η δοκιμή.",
            "هل نسيت كلمة المرور؟ اضغط هنا.",
            "שכחת סיסמה? לחץ כאן.",
            "Das Passwort muss mindestens zwölf Zeichen lang sein.",
            "Le mot de passe est obligatoire et doit contenir un chiffre.",
            "La contraseña es obligatoria.",
        ]
    ) + rng.choice(["", " 🙂", " 123", f" ({_hex(rng, 8)})"])


def _sql(rng: random.Random) -> str:
    return (
        f"SELECT u.id, u.email, u.password_hash FROM users u JOIN {rng.choice(_WORDS)}_keys k ON k.user_id = u.id "
        f"WHERE k.token_id = {rng.randint(1, 10**6)} ORDER BY u.created_at DESC LIMIT {rng.randint(1, 100)};"
    )


def _css(rng: random.Random) -> str:
    return f".{rng.choice(_WORDS)}-token {{ color: #{_hex(rng, 6)}; margin: 0 {rng.randint(1, 40)}px; }}"


def _url(rng: random.Random) -> str:
    return rng.choice(
        [
            f"https://github.com/acme/{rng.choice(_WORDS)}/commit/{_hex(rng, 40)}",
            f"https://example.com:8443/v1/items/{_uuid(rng)}?page=2&sort=key&cursor={rng.randint(1, 999)}",
            f"https://cdn.example.com/assets/app.{_hex(rng, 8)}.js",
            f"https://www.youtube.com/watch?v={_bytes(rng, 8)[:11].replace('/', '_').replace('+', '-')}",
            f"https://docs.example.com/{rng.choice(_WORDS)}#api-keys-and-tokens",
            f"git@github.com:acme/{rng.choice(_WORDS)}.git and ssh://git@host.example.com:2222/x.git",
            f"s3://acme-{rng.choice(_WORDS)}/2026/11/{_uuid(rng)}/part-{rng.randint(0, 9999):05}.parquet",
            f"https://meet.example.com/{rng.choice(_WORDS)}-{rng.choice(_WORDS)}-{rng.randint(100, 999)}?pwd=1",
        ]
    )


def _lock(rng: random.Random) -> str:
    return rng.choice(
        [
            f'"integrity": "sha512-{_bytes(rng, 64)}",\n"resolved": "https://packages.example.org/x/-/x-1.2.3.tgz"',
            f"    --hash=sha256:{_hex(rng, 64)} \\\n    --hash=sha256:{_hex(rng, 64)}",
            f"github.com/acme/x v1.2.3 h1:{_bytes(rng, 32)}",
            f'checksum = "{_hex(rng, 64)}"',
            f"FROM python@sha256:{_hex(rng, 64)}",
        ]
    )


def _public_key(rng: random.Random) -> str:
    lines = "\n".join(_bytes(rng, 48) for _ in range(5))
    return rng.choice(
        [
            f"-----BEGIN CERTIFICATE-----\nMIIDXTCC{lines}\n-----END CERTIFICATE-----",
            f"-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOC{lines}\n-----END PUBLIC KEY-----",
            f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{_bytes(rng, 32)[:43]} bob@laptop",
            f"-----BEGIN PGP SIGNATURE-----\n\n{lines}\n-----END PGP SIGNATURE-----",
            f"age1{hashlib.sha256(rng.randbytes(8)).hexdigest()[:58]}",
        ]
    )


def _ids(rng: random.Random) -> str:
    return rng.choice(
        [
            f"agent {rng.choice(_WORDS)}-{rng.randint(1, 99)} took job 01JD{_hex(rng, 22).upper()}",
            f"tx 0x{_hex(rng, 64)} to 0x{_hex(rng, 40)}",
            f"container {_hex(rng, 12)} exited with code 137, image {_hex(rng, 64)}",
            f"arn:aws:iam::{rng.randint(10**11, 10**12 - 1)}:role/deploy-{rng.choice(_WORDS)}",
            f"order {rng.randint(10**9, 10**10)} on 2026-11-22T10:00:00Z, version 12.4.{rng.randint(0, 99)}-rc.1",
            f"IBAN DE{rng.randint(10**19, 10**20 - 1)}, call +49 30 {rng.randint(10**6, 10**7)}",
            f"mac 00:1b:44:11:3a:{_hex(rng, 2)}, ip 10.{rng.randint(0, 255)}.3.4, port 5432",
        ]
    )


_KINDS: dict[str, Callable[[random.Random], str]] = {
    "prose": _prose,
    "about secrets": _about_secrets,
    "code": _code,
    "log": _log,
    "python trace": _trace,
    "java trace": _java_trace,
    "other alphabets": _foreign,
    "sql": _sql,
    "css": _css,
    "url": _url,
    "lock file": _lock,
    "public key": _public_key,
    "ids": _ids,
    "sha1": lambda rng: f"commit {_hex(rng, 40)}\nAuthor: Bob <bob@example.com>\n\n    {_some(rng, 3, 8)}",
    "short sha": lambda rng: f"{_hex(rng, 7)} {_some(rng, 3, 8)} (#{rng.randint(1, 9999)})",
    "sha256": lambda rng: f"{_hex(rng, 64)}  {rng.choice(_WORDS)}-1.2.3.tar.gz",
    "md5": lambda rng: f"MD5 ({rng.choice(_WORDS)}.iso) = {_hex(rng, 32)}",
    "uuid": lambda rng: f"{rng.choice(_WORDS)} {_uuid(rng)} is waiting for {_uuid(rng)}",
    "base64": lambda rng: f"body: {_bytes(rng, rng.randint(20, 200))}",
    "data uri": lambda rng: f"![dot](data:image/png;base64,iVBORw0KGgo{_bytes(rng, 90)})",
    "markdown": lambda rng: (
        f"## {_some(rng, 2, 4)}\n\n- [ ] **{rng.choice(_WORDS)}**: {_some(rng, 3, 9)}\n- `{rng.choice(_WORDS)}_key`"
    ),
    "json": lambda rng: f'{{"id": "{_uuid(rng)}", "etag": "{_hex(rng, 32)}", "size": {rng.randint(1, 10**6)}}}',
    "yaml": lambda rng: (
        f"{rng.choice(_WORDS)}:\n  image: acme/{rng.choice(_WORDS)}:{_hex(rng, 12)}\n  tokenFile: /run/secrets/x"
    ),
    "diff": lambda rng: (
        f"index {_hex(rng, 7)}..{_hex(rng, 7)} 100644\n-    key = {rng.choice(_WORDS)}\n+    key = {rng.choice(_WORDS)}"
    ),
    "numbers": lambda rng: " ".join(str(rng.randint(10**5, 10**12)) for _ in range(rng.randint(3, 20))),
}
