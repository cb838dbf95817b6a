"""What people are told of a failed connection, for the texts that no server of the tests produces, and who we are."""

from pathlib import Path

import pytest
import trustme

from maestro.settings import load
from maestro.settings.addresses import temporal_endpoint
from temporal.endpoint import Cause, Endpoint, explain_error, root_cause

KEY = "the-right-key"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("received fatal alert: AlertReceived(CertificateRequired)", Cause.OUR_CERTIFICATE_REFUSED),
        ("InvalidCertificate(ExpiredContext { time: 1, not_after: 0 })", Cause.OUTDATED_CERTIFICATE),
        ('ConnectError("tcp connect error", Os { code: 101, kind: NetworkUnreachable })', Cause.NO_WAY_THERE),
        ('Status { code: Unavailable, message: "the store is not ready" }', Cause.NOT_READY),
        ('Status { code: Internal, message: "mapped from HTTP status code 502" }', Cause.NOT_READY),
        ('Status { code: Unimplemented, message: "mapped from HTTP status code 404" }', Cause.NOT_TEMPORAL),
        ('Status { code: ResourceExhausted, message: "namespace rate limit exceeded" }', Cause.TOO_MUCH),
        ("something new", Cause.UNKNOWN),
    ],
)
def test_the_cause_is_read_from_the_text_and_told_in_one_line_without_the_key(text: str, cause: Cause) -> None:
    endpoint = Endpoint("t.example.org:7233", "default", api_key=KEY)
    assert root_cause(RuntimeError(text)) is cause
    said = explain_error(RuntimeError(f"{text} {KEY}\nand a second line"), endpoint)
    assert "\n" not in said
    assert KEY not in said


def test_no_answer_in_time_is_told_too() -> None:
    assert "Nothing answers at t.example.org:7233" in explain_error(
        TimeoutError(), Endpoint("t.example.org:7233", "default")
    )


def test_the_settings_become_the_endpoint(tmp_path: Path) -> None:
    authority = trustme.CA()
    pair = authority.issue_cert("maestro@example.org")
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    (tmp_path / "cert.pem").write_bytes(pair.cert_chain_pems[0].bytes())
    (tmp_path / "key.pem").write_bytes(pair.private_key_pem.bytes())
    (tmp_path / "maestro.json").write_text(
        '{"temporal": {"address": "t.example.org:7233", "namespace": "prod", "tls": true, "tlsCa": "file:ca.pem",'
        ' "tlsCert": "file:cert.pem", "tlsKey": "file:key.pem", "tlsServerName": "inner", "apiKey": "secret-key"}}'
    )
    endpoint = temporal_endpoint(load(tmp_path / "maestro.json", {}, {}).settings)
    assert endpoint.tls is not None
    config = endpoint.tls.build_config()
    assert config.server_root_ca_cert == authority.cert_pem.bytes().rstrip()
    assert (config.domain, endpoint.namespace, endpoint.api_key) == ("inner", "prod", "secret-key")
    assert config.client_private_key == pair.private_key_pem.bytes().rstrip()
    assert "secret-key" not in repr(endpoint)
    assert "PRIVATE KEY" not in repr(endpoint)
