"""What a name says about its value: whether something called so is a password, a secret, or neither."""

import re
from enum import Enum, auto
from itertools import pairwise

from maestro.scanner.tokens import latin_pattern


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


class Kind(Enum):
    """How much a name promises: what people choose, words in a row, what machines draw, or only perhaps the latter."""

    PASSWORD = auto()
    PHRASE = auto()
    SECRET = auto()
    MAYBE = auto()


_PASSWORDS = _words(
    """
    password passwords passwd passwds passwort kennwort passord passphrases passcode pwd pw psw pswd passw
    passwrd pass contrasena contrasenia senha parola parole haslo heslo wachtwoord lozinka losenord salasana
    jelszo sifre adgangskode motdepasse mdp clave sandi geslo slaptazodis parool paswoord pwrd userpass dbpass
    dbpassword dbpasswd rootpassword userpassword pgpassword mypassword secretpassword adminpassword matkhau
    storepass keypass requirepass masterauth userpwd dbpwd smtppass rootpass pass_phrase mailpass ftppass
    sudopass unixpass storepassword keypassword truststorepassword keystorepassword sshpass bindpw rootpw
    bindpassword psk
    """
)
_SECRETS = _words(
    """
    secret secrets secretkey token apikey apikeys apitoken apisecret authtoken authkey accesstoken accesskey
    accesskeyid refreshtoken clientsecret appsecret appkey privatekey secrettoken skey bearer credential
    credentials creds cred bearertoken sessiontoken signingkey encryptionkey masterkey licensekey sharedkey
    presharedkey webhooksecret consumersecret consumerkey idtoken jwt secretaccesskey accountkey hmackey
    passkey oauthtoken sas sastoken sharedaccesskey servicekey deploykey sshkey personalaccesstoken pat
    clientkey storagekey authsecret subscriptionkey instrumentationkey totpsecret otpsecret secretid
    cookiesecret sessionsecret xapikey usertoken npmtoken githubtoken slacktoken cleapi clesecrete chaveapi
    geheimnis schluessel authorization oauth connectionstring webhook jwtsecret keymaterial sessionkey dsn
    authcode pepper
    """
)
_OPEN = ("public", "publishable", "no", "hash")
_ENDS = ("password", "passwd", "passphrase", "secret", "apikey", "accesskey", "secretkey", "authtoken", "accesstoken")
_PHRASES = _words(
    """
    mnemonic seedphrase recoveryphrase backupphrase secretphrase seedwords recoverywords walletphrase
    mnemonicphrase secretrecoveryphrase passphrase mnemonicwords walletseed bip39
    """
)
_KEY_OF = _words(
    """
    api access secret private auth signing encryption encrypt decrypt decryption master license licence shared
    app application account client consumer service ssh deploy session storage subscription hmac jwt webhook
    admin management user server crypto cipher aes rsa ssl tls pgp gpg wallet token security host integration
    ingest ingestion write instrumentation preshared psk vault sas data wifi wep wpa recovery root bot project
    developer dev org organization team personal read cookie gateway sdk rest live prod production function
    search query platform provider merchant hash-secret fernet activation backup mac provisioning
    """
)
_NO_KEY = _words(
    """
    cache primary foreign sort partition public row idempotency lookup i18n map dict index object s3 redis hash dedupe
    dedup deduplication routing group grouping partitioning sorting sharding kafka memcache memcached unique registry
    config feature composite natural surrogate candidate hot enter return shift ctrl alt esc arrow tab space backspace
    delete function home end page the a an each this that same which any no every turn low high piano musical rate limit
    limiter order range pub publishable message event item translation localization storage-name state query-cache memo
    metric label tag param header json column field attribute property dictionary answer session-name trace span
    correlation lock mutex semaphore job queue topic shard bucket file path blob etag react component node parent child
    prev next first last new old keyboard up down left right f1 scan virtual hard soft is has by of to in for and or not
    get set from site
    """
)
_NO_TOKEN = _words(
    """
    page next continuation cancellation cancel sync resume syntax end start eos bos pad unk mask lexer type
    design special sep cls max min num total input output prompt completion count per separator word css theme
    color stop contract nft erc20 address mint current previous prev first last expected unexpected invalid
    illegal missing reserved punctuation identifier keyword comment whitespace string number operator fcm-topic
    shift parse parser reward utility idempotency change lock governance liquidity swap pagination paging offset cursor
    scroll concurrency fencing eof newline nonce-name batch one two hundred thousand million k sub ngram
    """
)
_NOT_BEHIND = _words(
    """
    name names file files filename path paths url urls uri endpoint id ids arn ref refs reference type types typ
    length len size count counts limit limits expiry expires expired expiration exp ttl hash hashes hashed
    hasher policy policies reset field fields input label hint placeholder regex pattern validator validation
    valid required enabled disabled manager provider store version versions header prefix suffix format usage
    budget rotation strength algorithm alg digest iterations checksum fingerprint status error errors issuer
    scope scopes audience mode kind class function var index at date time timestamp created updated changed
    confirm confirmation rules requirement requirements attempts tries retries age history entropy generator
    service server host port lifetime duration source dir directory folder location bucket engine backend helper
    util utils utility callback form page screen view button icon link text-field message email template visible
    visibility show hide toggle changed-at public exchange cookie-name claim claims parser response request
    request-id info metadata meta details less protected free rotation-days bits bytes chars characters word
    words window windows stream map list management scanning scanner detection redaction leak leaks key-name
    verify verified verification check checker needed missing accessor_id title description desc spec schema
    column table owner user users username
    """
)
_TWO_WORDS = _words(
    """
    api access auth client secret private app application bearer refresh session bot personal account webhook
    signing encryption master service shared admin deploy jwt license oauth id security device user storage
    subscription
    """
)

_STEMS = (
    rb"pass|pwd|(?:\b|_)pw(?:\b|_)|psw|contrase|senha|kennwort|parol|haslo|heslo|wachtwoord|lozinka|losenord"
    rb"|salasana|jelszo|sifre|adgangskode|mot de passe|mdp|clave|kata sandi|geslo|parool|mat khau|paswoord"
    rb"|secret|token|key|cred|bearer|auth|jwt|bip39|recovery|wallet|\bpat\b|psk|mnemonic|seed|sas|dsn|webhook|requirepass|geheim|schluessel"
    rb"|connection|bindpw|rootpw|pepper|salt"
)
_SPLIT = re.compile(rb"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def stems() -> object:
    """Return the pattern of what every name of a secret has in it, in either case."""
    return latin_pattern(_STEMS, any_case=True)


def words_of(name: bytes) -> list[str]:
    """Return the words of an identifier, whatever way it joins them, in small letters."""
    return [word.decode().lower() for word in _SPLIT.findall(name)]


def kind_of(words: list[str]) -> Kind | None:
    """Say what a name promises: the last word that means a secret decides, and what stands around it."""
    found = None
    for place in range(len(words)):
        for width in (3, 2, 1):
            kind = _kind_at(words, place, width)
            if kind is not None:
                found = (kind, place + width)
                break
    if found is None or any(word in _NOT_BEHIND for word in words[found[1] : found[1] + 3]):
        return None
    return found[0]


def _kind_at(words: list[str], place: int, width: int) -> Kind | None:
    """Say what some words of a name mean, if they mean a secret, given the word before them."""
    if place + width > len(words):
        return None
    word, before = "".join(words[place : place + width]), words[place - 1] if place else ""
    if word in _PHRASES:
        return Kind.PHRASE
    if word in _PASSWORDS:
        return Kind.PASSWORD
    if word in _SECRETS:
        harmless = before in _OPEN or (word == "token" and before in _NO_TOKEN)
        return None if harmless else Kind.SECRET
    return _kind_of_one(word, before) if width == 1 else None


def _kind_of_one(word: str, before: str) -> Kind | None:
    if word in ("key", "keys"):
        return _kind_of_key(before)
    if word in ("auth", "salt", "seed"):
        return Kind.MAYBE
    if word.endswith(_ENDS):
        return Kind.PASSWORD if word.endswith(("password", "passwd", "passphrase")) else Kind.SECRET
    return None


def _kind_of_key(before: str) -> Kind | None:
    if before in _KEY_OF:
        return Kind.SECRET
    return None if len(before) < 2 or before in _NO_KEY else Kind.MAYBE


def is_unmistakable(words: list[str]) -> bool:
    """Say whether the name has two words that together mean a secret, such as "access token"."""
    return any(
        first in _TWO_WORDS and second in ("key", "token", "secret", "password", "credential", "credentials")
        for first, second in pairwise(words)
    ) or any(word in ("apikey", "password", "passwd", "secret", "passphrase") for word in words)
