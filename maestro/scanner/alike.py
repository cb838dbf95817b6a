"""Characters that look like ASCII ones, and words for secrets in other alphabets."""

_PAIRS = """
аa вb еe кk мm нh оo рp сc тt уy хx іi јj ѕs ԁd ԛq ԝw һh гr ьb АA ВB ЕE КK МM НH ОO РP СC ТT УY ХX ІI ЈJ ЅS ЗZ ӀI ӏl
ԌG ҮY ԜW ԚQ
αa βb γy εe ιi κk νv οo ρp τt υu χx ωw ΑA ΒB ΕE ΖZ ΗH ΙI ΚK ΜM ΝN ΟO ΡP ΤT ΥY ΧX ϳj ϲc ͿJ ϹC
ոn սu օo ցg հh զq յj լl ւi ԼL ՍU ՕO Տs
ıi ɑa ɡg ɩi ɪI ʀR ʟL ɴN ᴀA ᴄC ᴅD ᴇE ᴊJ ᴋK ᴍM ᴏO ᴘP ᴛT ᴜU ᴠV ᴡW ᴢZ ʙB ɢG ʜH ʏY ꜱS øo ØO łl ŁL đd ĐD ħh ĦH ɵo
‐- ‑- ‒- –- −- ﹣- ⁃- ˗- ➖- ˍ_ ＿_ ‘' ’' ‚' ‛' ′' ʼ' ʹ' “" ”" „" ‟" ″" «" »" 「" 」" 『" 』"
∶: ꞉: ː: ׃: ︓: ﹕: ⁄/ ∕/ ⧸/
。. 、, ․. 、, ꞊= ═= ゠= →= ⇒= ➜= ➡= ⟶= 【[ 】] ∗* ∣| ؛; ،, ‹< ›> ︰:
"""


def _table(pairs: str) -> dict[str, str]:
    return {pair[0]: pair[1] for pair in pairs.split()}


ALIKE = _table(_PAIRS)
"""What a character looks like; full-width and mathematical ones are known by their decomposition."""

FOREIGN_WORDS = {
    "пароль": "passwd",
    "пароля": "passwd",
    "паролем": "passwrd",
    "парола": "passwd",
    "гасло": "passw",
    "лозинка": "passwrd",
    "токен": "token",
    "секрет": "secret",
    "ключ": "skey",
    "κωδικός": "passwrd",
    "κωδικος": "passwrd",
    "συνθηματικό": "pass_phrase",
    "סיסמה": "passw",
    "סיסמא": "passw",
    "كلمة المرور": "pass_phrase",
    "كلمة السر": "passwords",
    "رمز": "pwd",
    "密码": "pw",
    "密碼": "pw",
    "口令": "pw",
    "密钥": "pw",
    "密鑰": "pw",
    "令牌": "pw",
    "秘钥": "pw",
    "パスワード": "passw",
    "暗証番号": "pswd",
    "トークン": "skey",
    "シークレット": "secret",
    "비밀번호": "pswd",
    "암호": "pw",
    "토큰": "pw",
    "पासवर्ड": "passwrd",
    "รหัสผ่าน": "password",
}
"""An English word of the same length for each, so that no place in the text moves."""
