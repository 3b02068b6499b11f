"""Who may connect: proof of a shared secret and TLS, both of Weft alone and off by default.

A server with a secret answers a matching key with ``RPC_CODE_CHALLENGE`` and a random number. The client sends one of
its own and the HMAC-SHA256 of both under the secret; the server answers with another HMAC, so that each side knows that
the other has the secret, and nobody who listens learns it. A client that was given a secret accepts no less.
"""

import hmac
import secrets
import socket
import ssl
from os import PathLike

from weft.error import RPCError
from weft.rpc import base

NONCE_BYTES = 32
PROOF_BYTES = 32
Secret = str | bytes
Tls = bool | str | PathLike[str] | ssl.SSLContext
"""Of a client: whether to use TLS, a file of certificates to trust, or a context."""


def nonce() -> bytes:
    """A random number that is used once."""
    return secrets.token_bytes(NONCE_BYTES)


def proof(secret: Secret, side: str, key: str, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """What one side sends to show that it knows the secret."""
    data = secret.encode() if isinstance(secret, str) else secret
    text = b"\0".join((b"weft-rpc", side.encode(), key.encode(), server_nonce, client_nonce))
    return hmac.digest(data, text, "sha256")


def verified(found: bytes, expected: bytes) -> bool:
    """Whether a proof is right, in a time that does not tell how much of it is."""
    return hmac.compare_digest(found, expected)


def prove(sock: socket.socket, secret: Secret, key: str) -> None:
    """Answer a server's challenge, and take its proof.

    Raises
    ------
    RPCError
        When the server does not know the secret.
    """
    theirs, ours = base.recvall(sock, NONCE_BYTES), nonce()
    sock.sendall(ours + proof(secret, "client", key, theirs, ours))
    try:
        answer = base.recvall(sock, PROOF_BYTES)
    except OSError as e:
        raise RPCError("the server does not accept the secret", found=str(e)) from e
    if not verified(answer, proof(secret, "server", key, theirs, ours)):
        raise RPCError("the server does not know the secret")


def server_tls(certificate: str, key: str | None) -> ssl.SSLContext:
    """The context of a server with a certificate and its private key, files in PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context


def client_tls(sock: socket.socket, host: str, tls: Tls) -> socket.socket:
    """A client's socket under TLS; the server's certificate has to be for `host`, and trusted."""
    if isinstance(tls, ssl.SSLContext):
        context = tls
    else:
        context = ssl.create_default_context(cafile=None if tls is True else str(tls))
    return context.wrap_socket(sock, server_hostname=host)
